"""Search spaces: the hyperparameters that are tuned, and what each of them may be.

A space has two parts, as in FedEx (Khodak et al., Federated Hyperparameter Tuning, NeurIPS 2021): ``client`` for local
training and ``server`` for aggregation. A config is one point of a part, a plain dict. A draw takes one
``rng.random()`` for each name in order, so that a change to one dimension moves no other name's draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from lightning_fedhpo.arguments import is_number, shown
from lightning_fedhpo.space.categorical import Choice
from lightning_fedhpo.space.dimensions import Dimension, Float, Int, Value

__all__ = ["Choice", "Config", "Dimension", "Float", "Int", "SpacePart", "SearchSpace", "Value", "dimension", "ends_of"]

Config: TypeAlias = dict[str, Value]
SpacePart: TypeAlias = Literal["client", "server"]

_PARTS: tuple[SpacePart, ...] = ("client", "server")
_KINDS: dict[str, type[Dimension[Any]]] = {"choice": Choice, "float": Float, "int": Int}


def dimension(spec: object) -> Dimension[Any]:
    """Return the dimension that a mapping describes: a ``type`` (or Hydra's ``_target_``) and constructor arguments.

    A dimension is returned as it is.

    >>> dimension({"type": "float", "low": 0.1, "high": 10.0, "log": True})
    Float(0.1, 10.0, log=True)
    """
    if isinstance(spec, Dimension):
        return spec
    if not isinstance(spec, Mapping):
        raise TypeError(f"A dimension is a Float, Int or Choice, or a mapping with a `type`, got {shown(spec)}.")
    kind = str(spec.get("type", spec.get("_target_"))).rpartition(".")[2].lower()
    if kind not in _KINDS:
        raise ValueError(f"The `type` of a dimension is one of {sorted(_KINDS)}, got {dict(spec)!r}.")
    return _KINDS[kind].from_dict(spec)


def _dimensions(part: str, entries: object) -> dict[str, Dimension[Any]]:
    if not isinstance(entries, Mapping):
        raise TypeError(f"The {part} part of a space maps names to dimensions, got {shown(entries)}.")
    found = {}
    for name, spec in entries.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"The name of a hyperparameter is a text that is not empty, got {shown(name)} in {part}.")
        try:
            found[name] = dimension(spec)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{part}.{name}: {error}") from error
    return found


def ends_of(values: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value (of texts the first and the last), None where there are not two.

    >>> ends_of([3, 1, 2]), ends_of(["b", "a"]), ends_of([1])
    ((1, 3), ('b', 'a'), None)
    """
    ordered = sorted(values) if all(map(is_number, values)) else values
    return (ordered[0], ordered[-1]) if len(ordered) > 1 else None


class SearchSpace:
    """The hyperparameters that are tuned, of the clients and of the server.

    A space cannot be changed. Spaces are equal if the same names have equal dimensions in the same order.

    Args:
        client: Dimensions of local training's hyperparameters by name, also as mappings with a ``type``.
        server: Dimensions of aggregation's.

    >>> space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True), "epochs": Int(1, 5)})
    >>> config = space.sample(np.random.default_rng(0))
    >>> space.contains(config), space.contains({"lr": 7.0, "epochs": 3})
    (True, False)
    >>> space | SearchSpace(server={"momentum": Choice([0.0, 0.9])})
    SearchSpace(client={'lr': Float(0.0001, 1.0, log=True), 'epochs': Int(1, 5)},
                server={'momentum': Choice([0.0, 0.9])})
    """

    def __init__(self, client: Mapping[str, Any] | None = None, server: Mapping[str, Any] | None = None) -> None:
        # Plain dicts inside, because a mapping proxy can neither be pickled nor copied.
        self._client = _dimensions("client", {} if client is None else client)
        self._server = _dimensions("server", {} if server is None else server)

    @property
    def client(self) -> Mapping[str, Dimension[Any]]:
        """The dimensions of local training."""
        return MappingProxyType(self._client)

    @property
    def server(self) -> Mapping[str, Dimension[Any]]:
        """The dimensions of aggregation."""
        return MappingProxyType(self._server)

    def part(self, part: SpacePart) -> Mapping[str, Dimension[Any]]:
        """Return the dimensions of the part with this name."""
        return {"client": self.client, "server": self.server}[part]

    def check(self, config: Mapping[str, Any], part: SpacePart = "client") -> None:
        """Raise if the config is no point of the part: names unknown or missing, or a value outside."""
        dimensions = self.part(part)
        unknown = [name for name in config if name not in dimensions]
        missing = [name for name in dimensions if name not in config]
        if unknown or missing:
            wrong = [f"{what} {names}" for what, names in (("unknown", unknown), ("missing", missing)) if names]
            expected = list(dimensions)
            raise ValueError(f"A {part} config must have exactly the names {expected}, got {' and '.join(wrong)}.")
        for name, dimension_ in dimensions.items():
            if config[name] not in dimension_:
                raise ValueError(
                    f"{part}.{name} must lie in {dimension_!r}, got {config[name]!r}: its clip() moves it inside."
                )

    def contains(self, config: Mapping[str, Any], part: SpacePart = "client") -> bool:
        """Say whether the config is a point of the part: all its names, no other, and every value inside."""
        dimensions = self.part(part)
        return config.keys() == dimensions.keys() and all(config[name] in dimensions[name] for name in dimensions)

    def sample(self, rng: np.random.Generator, part: SpacePart = "client") -> Config:
        """Draw a config, uniform on every dimension's scale."""
        return {name: dimension_.sample(rng) for name, dimension_ in self.part(part).items()}

    def around(self, config: Mapping[str, Any], epsilon: float, part: SpacePart = "client") -> SearchSpace:
        """Return the space with one part narrowed to the neighbourhood of a config."""
        self.check(config, part)
        near = {name: dimension_.around(config[name], epsilon) for name, dimension_ in self.part(part).items()}
        return SearchSpace(**({"client": self._client, "server": self._server} | {part: near}))

    def neighbourhood(
        self, rng: np.random.Generator, k: int, epsilon: float, part: SpacePart = "client"
    ) -> list[Config]:
        """Draw FedEx's k configs: the first from the whole part, the others from the neighbourhood of the first."""
        first = self.sample(rng, part)
        near = self.around(first, epsilon, part)
        return [first, *(near.sample(rng, part) for _ in range(k - 1))]

    def ends(self, name: str, part: SpacePart = "client") -> tuple[Value, Value] | None:
        """Return a hyperparameter's smallest and largest value (of texts the first and last), None where it has one."""
        return ends_of(self.edges(name, part))

    def edges(self, name: str, part: SpacePart = "client") -> list[Value]:
        """Return the values to check before a run: all options, or both bounds; of a Float also one between them."""
        dimension_ = self.part(part)[name]
        if isinstance(dimension_, Choice):
            return list(dimension_.options)
        inner = [dimension_.quantile(0.381966)] if isinstance(dimension_, Float) else []
        return list(dict.fromkeys([*dimension_.grid(2), *inner]))

    def __or__(self, other: SearchSpace) -> SearchSpace:
        if not isinstance(other, SearchSpace):
            return NotImplemented
        for part in _PARTS:
            own = self.part(part)
            for name, dimension_ in other.part(part).items():
                if own.get(name, dimension_) != dimension_:
                    both = f"{own[name]!r} and {dimension_!r} for {part}.{name}"
                    raise ValueError(f"A name has one dimension, got {both}: drop one.")
        return SearchSpace({**self.client, **other.client}, {**self.server, **other.server})

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the space as JSON holds it."""
        return {part: {name: d.to_dict() for name, d in self.part(part).items()} for part in _PARTS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SearchSpace:
        """Return the space that ``to_dict`` wrote, or that a YAML file describes in the same way."""
        if not isinstance(data, Mapping) or set(data) - {*_PARTS, "_target_"}:
            raise ValueError(f"A space is a mapping with `client` and `server`, got {data!r}.")
        return cls(client=data.get("client"), server=data.get("server"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SearchSpace) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        parts = [f"{part}={dict(self.part(part))!r}" for part in _PARTS if self.part(part)]
        return f"SearchSpace({', '.join(parts)})"
