"""Another program proposes arms by JSON lines. `fedhpo-suggest` is one, and proposes what our searches would."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lightning_fedhpo import BayesianSearch, Choice, ExternalSearch, Float, Int, RandomSearch, Search, SearchSpace
from lightning_fedhpo.cli.suggest import main
from lightning_fedhpo.testing import toy_run

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "batch_size": Choice([4, 8]), "epochs": Int(1, 2)},
    server={"lr": Float(0.3, 1.0)},
)
LISTENS = """
import json, sys
with open({path!r}, "a") as log:
    for number, line in enumerate(sys.stdin):
        log.write(line)
        log.flush()
        print(json.dumps({{"client": {{"lr": 0.1 / (number + 1)}}, "server": {{}}}}), flush=True)
"""


def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: list[Any], *options: str) -> Any:
    """Give lines to the command, and return its code, what it wrote, and what it complained of."""
    monkeypatch.setattr(sys, "stdin", [line if isinstance(line, str) else json.dumps(line) for line in lines])
    code = main(options)
    said = capsys.readouterr()
    return code, [json.loads(line) for line in said.out.splitlines()], said.err


def test_the_program_is_told_every_score_and_its_values_are_trained(tmp_path: Path) -> None:
    log = tmp_path / "log"
    space = SearchSpace(client={"lr": Float(1e-3, 0.5)})
    command = [sys.executable, "-c", LISTENS.format(path=str(log))]
    search = ExternalSearch(space, command, budget=6, max_rounds=2)
    fed, _, _ = toy_run(6, search, monitor="val_acc", mode="max")
    assert [arm["client"]["lr"] for arm in fed.result.arms] == [0.1, 0.05, 0.1 / 3]
    assert fed.result.ledger["rounds"] == 6
    first, *told = [json.loads(line) for line in log.read_text().splitlines()]
    assert first == {"space": space.to_dict(), "mode": "max", "trials": 3, "rounds": 2, "seed": 0}
    expected = [
        {"trial": arm, "values": {"client": {"lr": rate}, "server": {}}, "score": row["scores"][-1], "rounds": 2}
        for (arm, rate), row in zip(enumerate([0.1, 0.05]), fed.result.arms[:2], strict=True)
    ]
    assert told == expected


@pytest.mark.parametrize(
    ("sampler", "own"),
    [
        ("random", lambda: RandomSearch(SPACE, budget=6, max_rounds=1)),
        ("tpe", lambda: BayesianSearch(SPACE, budget=6, max_rounds=1, sampler="tpe")),
    ],
)
def test_fedhpo_suggest_proposes_what_the_search_would(
    sampler: str, own: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna", reason="needs the extra `bayes`")
    search: Search = own()
    arms = toy_run(6, search)[0].result.arms
    values = [
        {part: {name: arm[part][name] for name in SPACE.part(part)} for part in ("client", "server")} for arm in arms
    ]
    lines = [{"space": SPACE.to_dict(), "trials": 6}]
    lines += [{"values": one, "score": arm["scores"][-1]} for one, arm in zip(values[:5], arms, strict=False)]
    code, answers, _ = talk(monkeypatch, capsys, lines, "--sampler", sampler)
    assert code == 0
    assert answers == values


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("print('lr=0.1')", r"must answer with a trial's values, such as .* on one line, got 'lr=0.1'"),
        ("print('[1]')", r"must answer with a trial's values, such as .*, got '\[1\]'"),
        ("print('{}')", r"must stay in the space: A client config must have exactly the names \['lr'\], got missing"),
        ('print(\'{"client": {"lr": 3}}\')', r"must stay in the space: client.lr must lie in Float.*, got 3"),
        ("sys.exit(4)", r"must write a line for every line it reads; it ended with code 4 instead"),
    ],
)
def test_a_program_that_answers_wrongly_ends_the_run(says: str, message: str) -> None:
    space = SearchSpace(client={"lr": Float(1e-3, 0.5)})
    search = ExternalSearch(space, [sys.executable, "-c", f"import sys; sys.stdin.readline(); {says}"], 2, 1)
    with pytest.raises(ValueError, match=message):
        toy_run(2, search)
    assert search._program is None, "the program has been ended"


@pytest.mark.parametrize("command", ["", "no-such-program --fast", []])
def test_a_program_that_cannot_be_started_is_refused(command: Any) -> None:
    with pytest.raises(ValueError, match="`command` must begin with a program that can be started"):
        ExternalSearch(SPACE, command)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{lr"], "a line must be one JSON object, got '{lr'"),
        ([{"trial": 0, "values": {}, "score": 1.0}], "the first line must have the space"),
        ([{"space": {"clients": {}}}], "A space is a mapping with `client` and `server`"),
        ([{"space": {"client": {}}}], "`space` must have a hyperparameter to search"),
        ([{"space": SPACE.to_dict()}, {"trial": 0, "score": 1.0}], "a line must have a trial's values and score"),
        ([{"space": SPACE.to_dict(), "mode": "up"}], "`mode` must be 'min' or 'max', got 'up'"),
    ],
)
def test_fedhpo_suggest_refuses_other_lines(
    lines: list[Any], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, complaint = talk(monkeypatch, capsys, lines)
    assert code == 1
    assert message in complaint
