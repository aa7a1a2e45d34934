"""Every method of the arena trains on a small federation within its budget, and every federation on small files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_module

from lightning_fedhpo.cli.main import train
from tests.recipes.test_compose import FILES, FOLDER
from tests.recipes.test_rounds import clothes, photos, writers
from tests.runs import quiet_surroundings  # noqa: F401 - the fixture is used unasked

METHODS = sorted(path.stem for path in FILES if path.parent.name == "method" and path.stem != "external")
QUICK = ["executor=sequential", "trainer.accelerator=cpu", "fed.evaluate_at=null", "fed.cohort=2", "progress=quiet"]
ROUNDS = ["arena.rounds=6", "arena.longest=2", "arena.short=2", "arena.bracket=4", "arena.updates=12"]
SMALL = ["data.clients=4", "data.size_mean=1", "data.size_spread=0.1", "data.features=6", "model.features=6"]
MORE = {
    "halving": ["search.eliminations=1", "search.budget=4"],
    "hyperband": ["search.budget=7"],
    "fedtuning": ["callbacks.budget.stopping_threshold=11"],
    "private_vote": ["arena.candidates=2", "callbacks.budget.stopping_threshold=11"],
    "random_fedpop": ["fed.cohort=3"],
    "halving_fedpop": ["fed.cohort=3", "search.eliminations=1", "search.budget=4"],
    "fedtune": ["fed.cohort=4", "data.server_fraction=0.1", "fed.retrain=4"],
}
SPENT = {"halving": 8, "halving_fedpop": 12, "random_fedpop": 18, "hyperband": 14, "fedtune": 24}
"""Client updates of what is not sized by 6 rounds of 2 clients."""


def run(tmp_path: Path, federation: str, method: str, *more: str) -> dict[str, object]:
    asked = [f"+arena={federation}", f"method={method}", f"folder={tmp_path / 'run'}", *QUICK, *ROUNDS, *more]
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        cfg = compose("config", [f"hydra.searchpath=[file://{FOLDER}]", *asked])
    return train(cfg)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_spends_the_budget(method: str, tmp_path: Path) -> None:
    kind = "halving" if method in ("halving_fedex", "halving_multiplicative") else method
    summary = run(tmp_path, "synthetic", method, *SMALL, *MORE.get(kind, []))
    spent = summary["ledger"]["client_updates"] + (summary.get("retraining") or {}).get("client_updates", 0)
    over = range(4 if method == "fedtuning" else 1)  # its last round may be larger than the first: 4 clients at most
    assert spent - SPENT.get(kind, 12) in over
    assert 0 <= summary["test"]["personalized"]["test_error"] <= 1


def reviews(folder: Path) -> Path:
    kinds = ("bad", "good")
    lines = [
        {"text": f"a {kinds[number % 2]} film {number}", "label": number % 2, "movie": f"film {number // 20}"}
        for number in range(60)
    ]
    (folder / "reviews.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "reviews.jsonl"


FEDERATIONS = {
    "femnist": (writers, []),
    "cifar10": (photos, ["data.partition.clients=3", "data.partition.min_size=5"]),
    "cifar10_skewed": (photos, ["data.partition.clients=3", "data.partition.min_size=5"]),
    "fashion_mnist": (clothes, ["data.partition.clients=2", "data.partition.min_size=20"]),
    "imdb": (reviews, ["data.features=16", "model.features=16"]),
}


@pytest.mark.parametrize("federation", FEDERATIONS)
def test_a_federation_trains(federation: str, tmp_path: Path) -> None:
    write, more = FEDERATIONS[federation]
    quick = ["trainer.max_epochs=1", "fed.verify=false", "fed.evaluate_clients=null", "evaluate.clients=null"]
    summary = run(tmp_path, federation, "default_adam", f"data.path={write(tmp_path)}", *quick, *more)
    assert summary["ledger"]["client_updates"] == 2


def test_noisy_scores_are_a_way_of_the_sweep(tmp_path: Path) -> None:
    summary = run(tmp_path, "synthetic", "random", *SMALL, "noise=private_errors", "noise.epsilon=1")
    assert summary["ledger"]["epsilon_per_release"] == 1


def test_all_federations_have_one_budget() -> None:
    arenas = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES if path.parent.name == "arena"]
    sizes = [{**one["arena"], "candidates": None} for one in arenas]
    assert sizes[1:] == sizes[:-1]
    assert all(one["arena"]["updates"] == one["arena"]["rounds"] * one["fed"]["cohort"] for one in arenas)
