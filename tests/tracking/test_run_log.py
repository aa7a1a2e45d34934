"""What every logger has of a run: whole curves of one arm each, against the round, tables, settings."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger

from lightning_fedhpo import FederatedLoop, FedEx, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tracking.run_log import log_report
from lightning_fedhpo.tracking.wandb import wandb_logger
from tests.runs import SEARCHED, SPENT, composed, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked
from tests.tracking import offline

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # in MLflow's own queries
SPACE = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}, server={"lr": Float(0.3, 3.0, log=True)})
Curve = dict[int, float]


class Tuned(ToyModule):
    """Saves its hyperparameters, of which the learning rate is tuned."""

    def __init__(self, lr: float = 0.1, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()


class Stop(Exception):  # noqa: N818 - not an error of anybody
    """Ends a run in the middle."""


class StopAt(ModelCheckpoint):
    """Saves every second round, and ends the run in one that is not saved."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 4 and trainer.ckpt_path is None:
            raise Stop


def every_logger(folder: Path, run_id: str | None = None) -> list[Logger]:
    """Return all kinds of loggers, which keep their files in the folder."""
    for package in ("mlflow", "tensorboard"):
        pytest.importorskip(package)
    database = f"sqlite:///{folder.parent}/mlflow.db"  # one for all tests: MLflow makes it in seconds
    flow = MLFlowLogger("fedhpo", tracking_uri=database, artifact_location=str(folder / "files"), run_id=run_id)
    wandb = wandb_logger(folder)
    assert wandb is not None
    return [CSVLogger(folder, None, "csv"), TensorBoardLogger(folder, None, "board"), flow, wandb]


def conclude(loggers: list[Any]) -> None:
    """End the run in Weights & Biases."""
    loggers[3].conclude(None)


def fit(loggers: list[Logger], *callbacks: Any, path: Any = None) -> tuple[FederatedLoop, Any]:
    """Fit three arms of six rounds, one after the third round."""
    fed = FederatedLoop(cohort=2, executor="sequential", log_arms=2)
    search, tuner = SuccessiveHalving(SPACE, eliminations=1, budget=12, max_rounds=6), FedEx(SPACE, configs=3)
    trainer = quiet_trainer(6, fed, search, tuner, *callbacks, logger=loggers, enable_checkpointing=bool(callbacks))
    trainer.fit(Tuned(), datamodule=toy_data(), ckpt_path=path)
    return fed, trainer


def curves_of(logger: Logger) -> dict[str, list[tuple[int, float]]]:
    """Return every curve that a logger has, as points (round, value), in the order in which they were logged."""
    found: dict[str, list[tuple[int, float]]] = {}
    if isinstance(logger, MLFlowLogger):
        client, run = logger.experiment, str(logger.run_id)
        for name in client.get_run(run).data.metrics:
            found[name] = [(one.step, one.value) for one in client.get_metric_history(run, name)]
    elif isinstance(logger, TensorBoardLogger):
        board = accumulated(logger)
        for name in board.Tags()["scalars"]:
            found[name] = [(one.step, one.value) for one in board.Scalars(name)]
    else:
        is_csv = isinstance(logger, CSVLogger)
        path = Path(str(logger.log_dir)) / "metrics.csv" if is_csv else offline.files(Path(str(logger.save_dir)))[-1]
        for row in rows(path) if is_csv else offline.history(path):
            for name, cell in row.items():
                if cell != "" and not name.startswith(("_", "charts/")):
                    found.setdefault(name, []).append((int(row["step" if is_csv else "round"]), float(cell)))
    return found


def accumulated(logger: Logger) -> Any:
    """Return what TensorBoard reads from a logger's folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(logger.log_dir), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    return board


def table_of(logger: Logger, name: str) -> list[dict[str, str]]:
    """Return a table as a logger keeps it."""
    if isinstance(logger, CSVLogger):
        return rows(Path(logger.log_dir) / f"{name}.csv")
    if isinstance(logger, MLFlowLogger):
        text = Path(logger.experiment.download_artifacts(str(logger.run_id), f"{name}.csv")).read_text()
        return list(csv.DictReader(io.StringIO(text)))
    if isinstance(logger, TensorBoardLogger):
        text = accumulated(logger).Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0].decode()
        head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        return [dict(zip(head, line, strict=True)) for line in lines]
    found = offline.table(offline.files(Path(str(logger.save_dir)))[-1], name)
    return [{key: str(cell) for key, cell in row.items()} for row in found]


def expected(fed: FederatedLoop, followed: Mapping[int, int]) -> dict[str, Curve]:
    """Return the probabilities' curves, from the history: the final arm's, and the followed arms' from a round on."""
    found: dict[str, Curve] = {}
    for row in fed.result.history:
        for place in range(3):
            name, arm = f"fedex/prob/{place}", row["arm"]
            if arm == fed.result.best_arm:
                found.setdefault(name, {})[row["round"]] = row[name]
            if row["round"] >= followed.get(arm, 99):
                found.setdefault(f"arm/{arm}/{name}", {})[row["round"]] = row[name]
    return found


def first_two(fed: FederatedLoop) -> dict[int, int]:
    """Return the arms that are followed, with the first round: the two best of the first, the survivor afterwards."""
    ranked = sorted(range(3), key=lambda arm: fed.result.arms[arm]["scores"][0])
    return {fed.result.best_arm: 3} | dict.fromkeys(ranked[:2], 0)


def check_curves(fed: FederatedLoop, logger: Logger) -> None:
    """Check that every curve is whole, of one arm, and has no round twice."""
    curves = curves_of(logger)
    wanted = expected(fed, first_two(fed))
    assert {name for name in curves if "/prob/" in name} == set(wanted)
    for name, curve in wanted.items():
        assert [number for number, _ in curves[name]] == sorted(curve), name
        assert dict(curves[name]) == pytest.approx(curve, abs=1e-6), name
    assert [number for number, _ in curves["val_loss"]] == list(range(6))
    assert [value for _, value in curves["ledger/rounds"]] == SPENT
    assert [number for number, _ in curves["arm/1/score"]] == list(range(fed.result.arms[1]["rounds"]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[FederatedLoop, Any]:
    """Return a run with all loggers together."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        fed, trainer = fit(every_logger(folder))
        (folder / "report.html").write_text("<html>")
        log_report(trainer, folder / "report.html")
        trainer.loggers[-1].conclude({"score": fed.result.score})
    return fed, trainer


@pytest.mark.parametrize("place", range(4), ids=["csv", "tensorboard", "mlflow", "wandb"])
def test_every_logger_has_curves_and_tables(run: tuple[FederatedLoop, Any], place: int) -> None:
    fed, trainer = run
    logger = trainer.loggers[place]
    check_curves(fed, logger)
    written = {(row["arm"], row["config"]): row for row in fed.result.configs}
    table = table_of(logger, "configs")
    assert len(table) == len(written) == 3 * 3
    for row in table:
        mine = written[int(row["arm"]), row["config"]]
        assert float(row["lr"]) == pytest.approx(mine["lr"], rel=1e-3)
        assert float(row["probability"]) == pytest.approx(mine["probability"], rel=1e-3, abs=1e-6)
    best = {(row["part"], row["name"]): float(row["value"]) for row in table_of(logger, "best")}
    assert best["client", "lr"] == fed.result.best["client"]["lr"] and best["server", "lr"] < 3


def test_settings_have_every_part_and_no_value_of_what_is_tuned(run: tuple[FederatedLoop, Any]) -> None:
    fed, trainer = run
    told = yaml.safe_load((Path(trainer.loggers[0].log_dir) / "hparams.yaml").read_text())
    assert told["width"] == 3 and "lr" not in told and told["settings"]["tuned"] == "lr"
    for part in ("algorithm", "search", "tuner"):
        assert told["settings"][part]["name"] == type(getattr(fed, part)).__name__
    assert told["settings"]["search"]["budget"] == 12 and told["settings"]["data"]["partition"] == "Iid(clients=8)"
    flow = trainer.loggers[2]
    params = flow.experiment.get_run(flow.run_id).data.params
    assert params["settings/search/eta"] == "3" and params["width"] == "3" and "lr" not in params
    (config,) = offline.of_kind(offline.files(Path(trainer.loggers[3].save_dir))[-1], "config")[:1]
    assert {"width", "settings"} <= {item.key or item.nested_key[0] for item in config.update}
    assert trainer.loggers[1].hparams["settings"]["tuner"]["epsilon"] == 0.1


def test_the_report_is_kept_where_a_logger_keeps_files(run: tuple[FederatedLoop, Any]) -> None:
    _, trainer = run
    flow, wandb = trainer.loggers[2:]
    assert "report.html" in [one.path for one in flow.experiment.list_artifacts(flow.run_id)]
    assert "report" in [one.type for one in offline.of_kind(offline.files(Path(wandb.save_dir))[-1], "artifact")]


@pytest.mark.parametrize("same_run", [False, True], ids=["new", "same"])
def test_curves_of_a_resumed_run_are_whole(tmp_path: Path, same_run: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = every_logger(tmp_path)
    with pytest.raises(Stop):
        fit(first, StopAt(tmp_path / "saved", every_n_epochs=2, save_top_k=-1))
    conclude(first)
    last = max((tmp_path / "saved").iterdir())
    flow: Any = first[2]
    with pytest.warns(UserWarning, match="exists and is not empty"):  # Lightning's CSVLogger begins its file anew
        again = every_logger(tmp_path, flow.run_id if same_run else None)
        fed, _ = fit(again, StopAt(tmp_path / "saved", every_n_epochs=2, save_top_k=-1), path=last)
    conclude(again)
    for logger in again:
        check_curves(fed, logger)


@pytest.mark.parametrize("count", [0, 1, "all"])
def test_whose_figures_are_logged(tmp_path: Path, count: Any) -> None:
    train(composed(tmp_path, *SEARCHED, f"fed.log_arms={count}", "tuner.configs=4", logger="csv"))
    logged, history = rows(tmp_path / "csv" / "metrics.csv"), rows(tmp_path / "history.csv")
    figures: dict[str, str] = {}
    for line in logged:
        figures |= {f"{line['step']} {name}": cell for name, cell in line.items() if cell}
    scores = {int(row["arm"]): float(row["score"]) for row in history if row["round"] == "0"}
    survivor = int(history[-1]["arm"])
    kept = {"all": list(scores), 0: [], 1: [min(scores, key=lambda arm: scores[arm])]}[count]
    for row in history:
        followed = int(row["arm"]) in kept or (count == 1 and int(row["arm"]) == survivor and int(row["round"]) > 2)
        for name in ["fedex/prob/0", "fedex/entropy", "val/val_acc_personalized"]:
            assert figures.get(f"{row['round']} arm/{row['arm']}/{name}") == (row[name] if followed else None)
        assert figures[f"{row['round']} arm/{row['arm']}/score"] == row["score"]
    assert not any("ledger/" in name for name in logged[0] if name.startswith("arm/"))


def test_weights_and_biases_shows_many_curves_in_one_panel(run: tuple[FederatedLoop, Any]) -> None:
    fed, trainer = run
    file = offline.files(Path(trainer.loggers[3].save_dir))[-1]
    rounds = [row["round"] for row in offline.history(file) if "charts/probabilities_table/path" in row]
    assert rounds == [0, 3, 5]  # after 1 and 4 rounds, and at the end
    last = [row for row in offline.history(file) if "charts/probabilities_table/path" in row][-1]
    table = json.loads((file.parent / "files" / last["charts/probabilities_table/path"]).read_text())
    mine = [row for row in fed.result.history if row["arm"] == fed.result.best_arm]
    drawn = {(x, round(y, 9)) for x, _, y in table["data"]}
    assert drawn == {(row["round"], round(row[f"fedex/prob/{j}"], 9)) for row in mine for j in range(3)}
    assert len({key for _, key, _ in table["data"]}) == 3
    alone = {message.name for message in offline.of_kind(file, "metric") if message.options.hidden}
    assert {"fedex/prob/0", "arm/0/score"} <= alone and not alone & {"fedex/entropy", "val_loss"}
