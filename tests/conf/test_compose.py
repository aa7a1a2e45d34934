"""Every option of every group composes into a run and makes the object it names: a new file is tested by existing."""

import sys
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import lightning_fedhpo.conf
import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo import FederatedLoop, FedEx, Float, Int, SearchSpace, SuccessiveHalving
from lightning_fedhpo.arms.trajectory import write_trajectory
from lightning_fedhpo.cli.build import build, callbacks, loggers, searching
from lightning_fedhpo.searches import Search
from tests.conf.data_files import MAKERS, characters, images
from tests.data.image_sets import write_batches, write_writers

FOLDER = Path(lightning_fedhpo.conf.__path__[0])
APART = ["algorithm", "clients", "devices", "noise", "executor", "logger", "trainer"]
"""Groups whose options have nothing to do with each other: they are composed together."""
GROUPS = ["data", "model", "search", "tuner", "space", *APART]
EXPERIMENTS = "experiment"  # whole set-ups, which nothing has by default: +experiment=<name>


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))


OPTIONS = [[f"{group}={option}" for option in options(group)] for group in GROUPS]
ALONE = [option for of_group in OPTIONS[: -len(APART)] for option in of_group]
TOGETHER = [" ".join(filter(None, row)) for row in zip_longest(*OPTIONS[-len(APART) :])]
EXTRAS = {"search=bayesian": "optuna", "logger=mlflow": "mlflow", "logger=tensorboard": "tensorboard"}


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")

    def of(*overrides: str) -> DictConfig:
        with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
            return compose("config", [f"folder={tmp_path}", *overrides])

    return of


@pytest.fixture
def composed(whole: Callable[..., DictConfig]):
    def of(*overrides: str) -> DictConfig:
        """Compose without a search and a tuner, but for those that are asked for."""
        plain = [f"{kind}=none" for kind in ("search", "tuner") if not any(o.startswith(f"{kind}=") for o in overrides)]
        return whole(*plain, *overrides)

    return of


def test_the_groups_are_those_of_the_contract():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0] not in "_."}
    assert folders == {*GROUPS, EXPERIMENTS} and all(options(group) for group in folders)


def test_the_default_is_fedex_in_successive_halving(whole):
    cfg = whole()
    search, tuner = searching(cfg)
    assert isinstance(search, SuccessiveHalving) and isinstance(tuner, FedEx)
    assert search.eta**search.eliminations == 27 and cfg.tuner.configs == 27
    assert search.rounds == search.max_rounds == cfg.trainer.max_epochs == 240
    assert search.spends <= search.budget == 2400
    assert search.space == tuner.space == build(whole("space=papers"), "space")
    assert tuner.client_names == ("lr", "momentum", "weight_decay", "batch_size", "epochs")
    assert cfg.data._target_.endswith("synthetic_classification") and cfg.model._target_.endswith("Linear")


@pytest.mark.parametrize("option", ["halving", "random"])
def test_the_default_budget_follows_the_rounds(whole, option: str):
    search, _ = searching(whole("trainer.max_epochs=20", f"search={option}"))
    assert (search.rounds, search.budget, search.spends) == (20, 200, 200)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # in MLflow's own queries
@pytest.mark.parametrize("option", [*ALONE, *TOGETHER])
def test_every_option_makes_a_run(composed, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch):
    for package in (EXTRAS[one] for one in option.split() if one in EXTRAS):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)  # where MLflow keeps its runs
    cfg = composed(*option.split())
    if option == "data=femnist":
        cfg.data.path = characters(tmp_path)
    if option in ("data=mnist", "data=fashion_mnist"):
        cfg.data.path = images(tmp_path)
    if option == "data=cifar10":
        cfg.data.path = str(write_batches(tmp_path))
    if option in ("data=mnist", "data=fashion_mnist", "data=cifar10"):
        cfg.data.partition.clients, cfg.data.partition.min_size = 2, 1  # these files have few images
    if option in MAKERS:
        cfg.data.path = MAKERS[option](tmp_path)
    if option == "tuner=replay":
        cfg.tuner.trajectory = str(tmp_path / "trajectory.json")
        write_trajectory(cfg.tuner.trajectory, [{"server": {"lr": 1.0}, "client": {"lr": 0.1}}])
    if option.startswith("space=") and cfg.space is not None:
        assert build(cfg, "space").client
        cfg.space = None  # nobody in this run has a use for one
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    if option == "data=table":
        cfg.model.features = 1  # as many as the table has columns
    build(cfg, "data"), build(cfg, "model")
    fed, found = build(cfg, "fed", algorithm=build(cfg, "algorithm")), searching(cfg)
    assert max((part.rounds for part in found if isinstance(part, Search)), default=1) <= cfg.trainer.max_epochs
    parts = [fed, *found, *callbacks(cfg, fed, tmp_path)]
    trainer = build(cfg, "trainer", callbacks=parts, logger=loggers(cfg))
    assert [part for part in trainer.callbacks if isinstance(part, FederatedLoop)] == [fed]
    if (group := option.partition("=")[0]) in ("search", "tuner"):  # who searches brings a space
        assert (cfg.space is not None) == (cfg[group] is not None and "space" in cfg[group])
        if cfg.space is not None:
            assert [part.space == build(cfg, "space") for part in found] == [True]
            cfg.space = None
            with pytest.raises(ValueError, match="needs a space, got none"):
                searching(cfg)


def test_the_papers_space_is_that_of_the_papers(composed):
    space = build(composed("space=papers", "space/client=[sgd,batch,epochs,dropout]"), "space")
    ends = {name: (dimension.quantile(0.0), dimension.quantile(1.0)) for name, dimension in space.client.items()}
    assert ends == {
        "lr": (10**-4, 1.0),
        "momentum": (0.0, 1.0),
        "weight_decay": (10**-5, 10**-1),
        "batch_size": (2**3, 2**7),
        "epochs": (1, 5),
        "dropout": (0.0, 0.5),
    }
    assert [space.server["lr"].quantile(part) for part in (0.0, 0.5, 1.0)] == [0.1, 1.0, 10.0]
    assert [space.server["decay"].quantile(part) for part in (0.0, 1.0)] == [10**-4, 10**-2]


def test_pieces_of_a_space_stand_alone_and_add_up(composed):
    for piece in sorted(path.stem for path in (FOLDER / "space/client").glob("*.yaml")):
        cfg = composed("space=papers", f"space/client=[{piece}]")
        space = build(cfg, "space")
        assert isinstance(space, SearchSpace) and list(space.client) == list(cfg.space.client)
        assert set(space.server) == {"lr", "momentum", "decay"}
    assert list(build(composed("space=papers", "space/client=[epochs,prox]"), "space").client) == ["epochs", "prox_mu"]


def test_models_take_the_shape_of_the_data(composed, tmp_path: Path):
    assert composed("data=synthetic", "data.features=7", "data.classes=3", "model=linear").model.features == 7
    assert composed("data=synthetic_images", "data.size=16", "model=lenet").model.size == 16
    for model in ("cifar_cnn", "lenet", "cnn"):
        sizes = composed("data=cifar10", f"model={model}").model
        assert (sizes.channels, sizes.size) == (3, 32)
    assert composed("data=fashion_mnist", "model=lenet").model.channels == 1
    digits, photographs = images(tmp_path / "digits"), str(write_batches(tmp_path / "photographs"))
    for data, path, model in (("mnist", digits, "mlp"), ("cifar10", photographs, "cifar_cnn")):
        chosen = [f"data={data}", f"data.path={path}", f"model={model}", "data/partition=iid"]
        cfg = composed(*chosen, "data.partition.clients=2")
        x, _ = build(cfg, "data").examples(0).slice(0, 4)
        assert build(cfg, "model")(x).shape == (4, 10)


@pytest.mark.parametrize("partition", options("data/partition"))
def test_images_are_shared_out_as_they_are_told(composed, tmp_path: Path, partition: str):
    path = images(tmp_path)
    write_writers(tmp_path, [1, 2, 3, 4] * 50)
    choice = "by=writer" if partition == "natural" else "clients=4"
    cfg = composed("data=mnist", f"data.path={path}", f"data/partition={partition}", f"data.partition.{choice}")
    if partition == "shards":
        cfg.data.partition.classes_per_client = 3  # 4 clients of 2 could not hold 10 classes
    data = build(cfg, "data")
    assert len(data) == 4 and type(data.partition).__name__.lower() == partition
    assert int(data.sizes("train").sum() + data.sizes("val").sum()) == 200 and int(data.sizes("test").sum()) == 50


@pytest.mark.parametrize("experiment", options(EXPERIMENTS))
def test_every_experiment_is_a_run(whole, tmp_path: Path, experiment: str):
    few = ["data.partition.clients=2", "data.partition.min_size=1"]  # the files have 200 images
    cfg = whole(f"+{EXPERIMENTS}={experiment}", f"data.path={images(tmp_path / 'digits')}", *few)
    assert not OmegaConf.missing_keys(cfg)
    fed = build(cfg, "fed", algorithm=build(cfg, "algorithm"))
    parts = searching(cfg)
    spent = max((part.rounds for part in parts if isinstance(part, Search)), default=1) + (fed.retrain or 0)
    assert spent <= cfg.trainer.max_epochs
    assert build(cfg, "trainer", callbacks=[fed, *parts, *callbacks(cfg, fed, tmp_path)], logger=False)
    build(cfg, "data"), build(cfg, "model")


def test_a_folder_of_the_users_adds_options(composed, tmp_path: Path):
    own = tmp_path / "own" / "algorithm"
    own.mkdir(parents=True)
    (own / "half.yaml").write_text("_target_: lightning_fedhpo.FedAvg\nlr: 0.5\n")
    cfg = composed(f"hydra.searchpath=[file://{own.parent}]", "algorithm=half")
    assert build(cfg, "algorithm").server["lr"] == 0.5


@pytest.mark.parametrize(
    ("section", "override", "message"),
    [
        ("algorithm", "algorithm.lr=-1", "algorithm: the server's `lr` must be above 0"),
        ("algorithm", "+algorithm.mu=1", "algorithm: .*mu"),
        ("model", "+model.depth=3", "model: .*depth"),
        ("space", "space.client.lr.low=5", "space: .*5"),
    ],
)
def test_errors_name_the_section(composed, section: str, override: str, message: str):
    with pytest.raises(ValueError, match=message):
        build(composed("space=papers", override), section)


def test_an_extra_that_is_missing_is_named(composed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"^search: BayesianSearch .* pip install 'lightning-fedhpo\[bayes\]'"):
        searching(composed("search=bayesian"))


def test_a_space_that_nobody_searches_is_refused(composed):
    for tuner in ("fixed", "none"):
        with pytest.raises(ValueError, match="neither the tuner nor the search looks for anything in it"):
            searching(composed("space=papers", f"tuner={tuner}"))
    assert searching(composed("space=none")) == []


@pytest.mark.parametrize("tuner", ["fedex", "none"])
def test_a_space_is_composed_from_pieces_and_its_bounds_are_moved(composed, tuner: str):
    pieces = ["space/client=[sgd,batch,epochs,dropout]", "space.client.lr.low=0.01", "space.client.epochs.high=2"]
    search, *tuners = searching(composed("search=halving", f"tuner={tuner}", *pieces))
    assert list(search.space.client) == ["lr", "momentum", "weight_decay", "batch_size", "epochs", "dropout"]
    assert search.space.client["lr"] == Float(0.01, 1.0, log=True)
    assert search.space.client["epochs"] == Int(1, 2)
    assert [part.space for part in tuners] == [search.space] * (tuner == "fedex")
