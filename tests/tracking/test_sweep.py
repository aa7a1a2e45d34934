"""A sweep over tuners and seeds in one process: what Weights & Biases and the tables have of each run, and of all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.runs import SEARCHED, SPENT, call, quiet, rows, small
from tests.tracking import offline

JOBS = [("none", 0), ("none", 1), ("fedex", 0), ("fedex", 1)]
PIECES = ["model=mlp", "model.hidden=4", "space/client=[sgd,batch,epochs,dropout]", "space.client.lr.low=0.01"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of four runs."""
    folder = tmp_path_factory.mktemp("sweep")
    asked = ["-m", "hydra.sweep.dir=multirun/first", "tuner=none,fedex", "seed=0,1", "search=halving"]
    with quiet(folder / "home"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.chdir(folder)
        assert call(*small([*asked, *PIECES, *SEARCHED, "fed.evaluate_at=4"])) == (None, "")
    return folder / "multirun" / "first"


def file_of(folder: Path) -> Path:
    """Return the one W&B file of a run."""
    (file,) = offline.files(folder)
    return file


def best_rows(folder: Path) -> list[dict[str, str]]:
    """Return the best arm's row of every round."""
    return [row for row in rows(folder / "history.csv") if row["best"] == "True"]


def test_every_run_has_its_own_and_seeds_are_grouped(sweep: Path) -> None:
    runs = [offline.of_kind(file_of(sweep / str(number)), "run")[0] for number in range(4)]
    assert [run.run_group for run in runs] == [f"multirun/first tuner={tuner}" for tuner, _ in JOBS]
    assert len({run.run_id for run in runs}) == 4
    assert {run.project for run in runs} == {"fedhpo"}
    configs = [offline.of_kind(file_of(sweep / str(number)), "config")[0].update for number in range(4)]
    told = [{item.key: json.loads(item.value_json) for item in config} for config in configs]
    assert [(config["tuner"] is not None, config["seed"]) for config in told] == [
        (tuner != "none", seed) for tuner, seed in JOBS
    ]
    assert all("hidden" in config["model"] and "lr" not in config["model"] for config in told)  # it is tuned


@pytest.mark.parametrize("number", range(4))
def test_a_run_in_weights_and_biases(sweep: Path, number: int) -> None:
    folder = sweep / str(number)
    file, written = file_of(folder), best_rows(folder)
    logged = [row for row in offline.history(file) if "ledger/rounds" in row]  # others are of the final arm's curves
    assert [row["round"] for row in logged] == list(range(6))
    assert [row["ledger/rounds"] for row in logged] == SPENT
    assert [row["arms/live"] for row in logged] == [3, 3, 1, 1, 1, 1]
    for ours, theirs in zip(logged, written, strict=True):
        for name, cell in theirs.items():
            if cell and "/" in name and not name.startswith(("train/", "fedex/")):
                assert ours[name] == pytest.approx(float(cell), abs=1e-9), name
        assert ours["val_loss"] == ours["by_budget/val_loss"] == pytest.approx(float(theirs["score"]), abs=1e-9)
    for row in rows(folder / "history.csv"):  # the scores of all arms
        assert logged[int(row["round"])][f"arm/{row['arm']}/score"] == pytest.approx(float(row["score"]), abs=1e-9)

    steps, names = offline.steps(file), {name for row in logged for name in row}
    by_budget = {name for name in names if name.startswith("by_budget/")}
    scores = ["val_loss", "test/test_error", "test/test_error_personalized", "test/test_loss", "test/test_acc"]
    assert by_budget >= {f"by_budget/{name}" for name in scores}
    assert {name: steps[name] for name in by_budget} == dict.fromkeys(by_budget, "ledger/rounds")
    assert steps["*"] == "round" and steps["round"] == "" == steps["ledger/rounds"]
    assert [name for name in steps if name.endswith("*")] == ["*"]  # where two patterns fit, W&B takes any

    summary, told = offline.summary(file), json.loads((folder / "summary.json").read_text())
    for name in ("best", "score", "test", "ledger", "best_arm", "seconds", "seed"):
        assert summary[name] == told[name], name
    assert set(told["best"]["client"]) == {"lr", "momentum", "weight_decay", "batch_size", "epochs", "dropout"}


@pytest.mark.parametrize("number", [2, 3])
def test_probabilities_and_configurations(sweep: Path, number: int) -> None:
    folder = sweep / str(number)
    logged = [row for row in offline.history(file_of(folder)) if "fedex/prob/0" in row]
    assert sorted(row["round"] for row in logged) == list(range(6))
    for row in [*logged, *rows(folder / "history.csv")]:
        chances = [float(row[f"fedex/prob/{place}"]) for place in range(27)]
        assert sum(chances) == pytest.approx(1, abs=1e-9)
        assert float(row["fedex/entropy"]) == pytest.approx(-sum(p * math.log(p) for p in chances if p), abs=1e-9)
        assert chances[int(float(row["fedex/mle"]))] == max(chances)
    table, written = offline.table(file_of(folder), "configs"), rows(folder / "configs.csv")
    assert [{name: str(value) for name, value in row.items()} for row in table] == written and len(table) == 3 * 27
    last = best_rows(folder)[-1]
    mine = [row for row in table if str(row["arm"]) == last["arm"]]
    assert [row["probability"] for row in mine] == [float(last[f"fedex/prob/{place}"]) for place in range(27)]


def test_the_space_is_the_one_of_the_command_line(sweep: Path) -> None:
    assert not (sweep / "0" / "configs.csv").exists()  # without a tuner
    for row in [row for number in range(4) for row in rows(sweep / str(number) / "jobs.csv")]:
        assert 0.01 <= float(row["lr"]) <= 1.0 and 0.0 <= float(row["dropout"]) <= 0.5
        assert 1 <= int(row["epochs"]) <= 5 and int(row["batch_size"]) in (8, 16, 32, 64, 128)


@pytest.mark.parametrize("number", [0, 2])
def test_the_best_arm_is_tested_at_the_rounds_asked_for(sweep: Path, number: int) -> None:
    folder = sweep / str(number)
    tested = {int(row["ledger/rounds"]): row for row in rows(folder / "history.csv") if row["test/test_error"]}
    assert sorted(tested) == [6, 9, 12]  # the first that reach 4, 8 and 12
    assert all(row["best"] == "True" and row["test/arm"] == row["arm"] for row in tested.values())
    final = json.loads((folder / "summary.json").read_text())["test"]  # of the same arm after the same rounds
    for name, value in final["global"].items():
        assert float(tested[12][f"test/{name}"]) == value
        assert float(tested[12][f"test/{name}_personalized"]) == final["personalized"][name]
