"""SearchSpace: configs, neighbourhoods, composition, and what comes from YAML."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_fedhpo.space.search_space import Choice, Float, Int, SearchSpace

CLIENT = {
    "lr": Float(1e-4, 1.0, log=True),
    "momentum": Float(0.0, 0.9),
    "batch_size": Choice([8, 16, 32, 64, 128]),
    "epochs": Int(1, 5),
    "activation": Choice(["relu", "gelu"]),
}
SERVER = {"lr": Float(0.1, 10.0, log=True), "decay": Float(1e-4, 1e-2, log=True)}
SPACE = SearchSpace(client=CLIENT, server=SERVER)
CONFIG = {"lr": 0.01, "momentum": 0.5, "batch_size": 32, "epochs": 3, "activation": "gelu"}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_parts_are_read_only_and_in_the_order_given() -> None:
    assert list(SPACE.client) == list(CLIENT) and list(SPACE.server) == list(SERVER)
    with pytest.raises(TypeError):
        SPACE.client["lr"] = Float(0.0, 1.0)  # type: ignore[index]
    with pytest.raises(AttributeError):
        SPACE.client = {}  # type: ignore[misc]


@pytest.mark.parametrize("part", ["client", "server"])
def test_each_name_takes_one_random_number_in_the_order_given(part: Any) -> None:
    dimensions = SPACE.part(part)
    numbers = rng().random(len(dimensions))
    config = SPACE.sample(rng(), part)
    assert config == {name: dimensions[name].quantile(u) for name, u in zip(dimensions, numbers, strict=True)}
    assert SPACE.contains(config, part)
    # So another dimension under one name leaves the other names as they are.
    other = SearchSpace(**{part: {**dimensions, "lr": Choice(["a", "b", "c"])}}).sample(rng(), part)
    assert {**other, "lr": config["lr"]} == config


def test_around_keeps_within_epsilon_and_epsilon_zero_keeps_everything() -> None:
    generator, near = rng(), SPACE.around(CONFIG, 0.25)
    for _ in range(200):
        config = near.sample(generator)
        assert 0.001 <= config["lr"] <= 0.1  # type: ignore[operator]
        assert 0.275 <= config["momentum"] <= 0.725  # type: ignore[operator]
        assert config["batch_size"] in (16, 32, 64)
        assert config["epochs"] in (2, 3, 4)
        assert config["activation"] == "gelu"
    assert SPACE.around(CONFIG, 0.0).sample(generator) == CONFIG
    assert SPACE.around(CONFIG, 1.0) == SPACE
    server = SPACE.around({"lr": 1.0, "decay": 1e-3}, 0.25, "server").sample(generator, "server")
    assert 10**-0.5 <= server["lr"] <= 10**0.5  # type: ignore[operator]


def test_neighbourhood_is_around_its_first_config() -> None:
    configs = SPACE.neighbourhood(rng(), k=20, epsilon=0.1)
    assert len(configs) == 20
    assert configs[0] == SPACE.sample(rng()) != configs[1]
    near = SPACE.around(configs[0], 0.1)
    assert all(near.contains(config) for config in configs)
    assert configs[:5] == SPACE.neighbourhood(rng(), k=5, epsilon=0.1)
    assert SPACE.neighbourhood(rng(), k=4, epsilon=0.0) == [configs[0]] * 4
    generator = rng()
    assert SPACE.neighbourhood(rng(), k=4, epsilon=1.0) == [SPACE.sample(generator) for _ in range(4)]


def test_check_names_what_is_wrong_and_what_exists() -> None:
    config = {"learning_rate": 0.1, **{name: CONFIG[name] for name in CONFIG if name not in ("lr", "epochs")}}
    with pytest.raises(ValueError) as caught:
        SPACE.check(config)
    for part in ("unknown ['learning_rate']", "missing ['lr', 'epochs']", str(list(CLIENT)), "client"):
        assert part in str(caught.value)
    with pytest.raises(ValueError, match=r"client.epochs must lie in Int\(1, 5\), got 9"):
        SPACE.check({**CONFIG, "epochs": 9})
    with pytest.raises(ValueError, match="server config .* got missing"):
        SPACE.check({"lr": 1.0}, "server")
    with pytest.raises(ValueError, match="server.decay must lie in"):
        SPACE.around({"lr": 1.0, "decay": 0.5}, 0.1, "server")
    assert not SPACE.contains(config) and not SPACE.contains({**CONFIG, "epochs": 9})


def test_an_empty_space_has_one_empty_config() -> None:
    empty = SearchSpace()
    assert empty.sample(rng()) == {} and empty.contains({}, "server")
    assert empty.neighbourhood(rng(), k=2, epsilon=0.5) == [{}, {}]
    assert SearchSpace.from_dict(empty.to_dict()) == empty
    assert repr(empty) == "SearchSpace()"
    a, b = Float(0.0, 1.0), Float(0.0, 2.0)
    assert SearchSpace({"a": a, "b": b}) != SearchSpace({"b": b, "a": a}), "the order of names is that of the draws"


@pytest.mark.parametrize(
    "dimension",
    [
        Float(-2.0, 3.0),
        Float(1e-4, 1.0, log=True),
        Int(-3, 3),
        Int(1, 1000, log=True),
        Choice([8, 16, 32]),
        Choice(["relu", "gelu"]),
        Choice([None, True, 1.5, "x"]),
        Choice([2, 1, 3], ordered=True),
    ],
    ids=repr,
)
def test_round_trips(dimension: Any) -> None:
    assert type(dimension).from_dict(json.loads(json.dumps(dimension.to_dict()))) == dimension
    space = SearchSpace(client={"one": dimension}, server=SERVER)
    read = SearchSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    assert read == space and read.sample(rng()) == space.sample(rng())
    for one in (dimension, space):
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == eval(repr(one)) == one
        assert len({one, copy.copy(one)}) == 1


def test_spaces_are_joined() -> None:
    sgd, epochs = SearchSpace(client={"lr": Float(0.1, 1.0)}), SearchSpace(client={"epochs": Int(1, 5)})
    both = sgd | epochs
    assert list(both.client) == ["lr", "epochs"]
    assert both == both | sgd
    assert list(sgd.client) == ["lr"]  # the pieces stay as they are
    other = SearchSpace(client={"lr": Float(0.5, 1.0)})
    with pytest.raises(ValueError, match=r"Float\(0.1, 1.0\) and Float\(0.5, 1.0\) for client.lr"):
        both | other
    assert list((SearchSpace(server={"lr": Float(0.1, 1.0)}) | other).server) == ["lr"]  # another part, no clash
    with pytest.raises(TypeError):
        sgd | {"lr": Float(0.1, 1.0)}  # type: ignore[operator]


YAML = """
sgd: {lr: {type: float, low: 1e-4, high: 1.0, log: true}}
epochs: {epochs: {_target_: lightning_fedhpo.space.search_space.Int, low: 1, high: 5}}
batch: {batch_size: {_target_: lightning_fedhpo.space.search_space.Choice, options: [8, 16]}}
"""
FROM_YAML = SearchSpace({"lr": Float(1e-4, 1.0, log=True), "epochs": Int(1, 5), "batch_size": Choice([8, 16])})


@pytest.mark.parametrize("convert", ["none", "partial", "all", "object"])
def test_hydra_builds_a_merged_mapping(convert: str) -> None:
    pieces = OmegaConf.create(YAML)
    merged = OmegaConf.merge(pieces.sgd, pieces.epochs, pieces.batch)
    config = OmegaConf.create({"_target_": "lightning_fedhpo.space.search_space.SearchSpace", "client": merged})
    assert instantiate(config, _convert_=convert) == FROM_YAML


@pytest.mark.parametrize(
    ("client", "error", "message"),
    [
        ([Float(0.0, 1.0)], TypeError, "maps names to dimensions"),
        ({"lr": {"low": 0.1, "high": 0.2}}, ValueError, r"client.lr: The `type` .* \['choice', 'float', 'int'\]"),
        ({"lr": {"type": "float", "low": 2, "high": 1}}, ValueError, "client.lr: .*swap"),
        ({"lr": {"type": "float", "low": 2}}, TypeError, "client.lr: .*high"),
        ({3: Float(0.0, 1.0)}, TypeError, "name of a hyperparameter .* got 3 in client"),
    ],
)
def test_constructor_refuses(client: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SearchSpace(client=client)


def test_ends_are_the_true_extremes_and_edges_are_all_that_can_be_checked() -> None:
    choices = {"epochs": Choice([3, 1, 5, 2]), "act": Choice(["b", "c", "a"]), "flag": Choice([True, False])}
    numbers = {"lr": Float(1e-3, 1.0, log=True), "steps": Int(1, 9), "one": Int(2, 2)}
    space = SearchSpace(client=choices | numbers)
    ends = [space.ends(name) for name in space.client]
    assert ends == [(1, 5), ("b", "a"), (True, False), (1e-3, 1.0), (1, 9), None]
    assert space.edges("epochs") == [3, 1, 5, 2]
    assert space.edges("steps") == [1, 9]
    low, high, inner = space.edges("lr")
    assert (low, high) == (1e-3, 1.0)
    assert low < inner < high
