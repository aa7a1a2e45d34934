"""Fixed values: the simplest tuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.arguments import check_kinds, is_number, number, shown, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.best_file import VALUES, read_best
from lightning_fedhpo.tuners.base import RunPlan, Tuner
from lightning_fedhpo.types import Config, plain


class Fixed(Tuner):
    """Set client and server hyperparameters without tuning them; ``Fixed("best.yaml")`` takes those of a run.

    Args:
        client: Values by name, for every client in every round; or a file, as `file`.
        server: Values by name, for the server.
        clients: Each client's own values, by its number, which go over ``client``: for all clients of the federation,
            from 0, or for none. Numbers may be texts, as in a JSON file.
        file: A run's ``best.yaml``, in place of all the others. ``Fixed(**fed.result.best)`` takes the same values
            from memory.

    Example:
        >>> Fixed(client={"epochs": 1, "batch_size": 16}).client_names
        ('epochs', 'batch_size')
    """

    def __init__(
        self,
        client: Mapping[str, Any] | str | PathLike[str] | None = None,
        server: Mapping[str, Any] | None = None,
        clients: Mapping[Any, Mapping[str, Any]] | None = None,
        *,
        file: str | PathLike[str] | None = None,
    ) -> None:
        check_kinds(Fixed, locals())
        if isinstance(client, str | PathLike) and file is None:
            client, file = None, client
        self._file, self._found = file, dict[str, Any]()
        if self._file is not None:
            if client or server or clients:
                raise ValueError(
                    f"Fixed takes values or a file that has all of them, got {self._file} and more: change the values "
                    "in the file."
                )
            self._found = read_best(self._file)
            client, server, clients = (self._found.get(name) for name in VALUES)
        try:
            self._take(client or {}, server or {}, clients or {})  # type: ignore[arg-type]  # a text is a file
        except (TypeError, ValueError) as error:
            if self._file is None:
                raise
            raise type(error)(f"{self._file}: {error}") from error

    def _take(
        self, client: Mapping[str, Any], server: Mapping[str, Any], clients: Mapping[Any, Mapping[str, Any]]
    ) -> None:
        several = [(f"client {key}", own) for key, own in clients.items()]
        for side, values in (("client", client), ("server", server), *several):
            for name, value in values.items():
                if not isinstance(name, str) or not name:
                    raise TypeError(f"the name of a {side}'s hyperparameter must be a text, got {shown(name)}.")
                if is_number(value):
                    number(f"the {side}'s `{name}`", value)
        self._client = plain(client)
        self._server = plain(server)
        shared = self._client.items()
        self._clients = {
            _client_number(key): {name: value for name, value in plain(own).items() if (name, value) not in shared}
            for key, own in clients.items()
        }
        self.client_names = tuple(dict.fromkeys([*self._client, *(name for _, own in several for name in own)]))

    def plan(self, plan: RunPlan) -> None:
        """Refuse a federation of other clients than those that have values of their own; warn of another method."""
        if self._clients and set(self._clients) != set(range(plan.clients)):
            raise ValueError(
                f"`clients` {'' if self._file is None else f'of {self._file} '}must have values for every client of "
                f"the federation, numbers 0 to {plan.clients - 1}, got {len(self._clients)} from {min(self._clients)} "
                f"to {max(self._clients)}: they belong to another federation. Give what all clients share as `client`."
            )
        for name, present in (("algorithm", plan.algorithm), ("schedules", plan.schedules)):
            before = self._found.get(name, present)
            if before != present:
                texts = _setting_text(before), _setting_text(present)
                rank_zero_warn(f"{self._file} was found with {name} {texts[0]}, and this run has {texts[1]}.")

    def server(self, arm: int, seed: int) -> Config:
        """Return the fixed server values."""
        return self._server

    def best(self, arm: Arm) -> Config:
        """Return the fixed values that all clients share."""
        own = {name for config in self._clients.values() for name in config}
        return {name: value for name, value in self._client.items() if name not in own}

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return each client's fixed values, where they differ."""
        return [self.deployed(arm, client, 0) for client in range(len(self._clients))]

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return a client's fixed values."""
        return {**self._client, **self._clients.get(client, {})}

    def trial(self, seed: int) -> Config:
        """Return the first client's fixed values."""
        return {**self._client, **self._clients.get(0, {})}

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return every value that a hyperparameter has among the clients."""
        own = [config for config in self._clients.values() if name in config] if part == "client" else []
        values: list[Any] = []
        values += (config[name] for config in own if config[name] not in values)
        return values

    def identity(self) -> dict[str, Any]:
        """Return the values."""
        clients = {"clients": {str(key): own for key, own in self._clients.items()}} if self._clients else {}
        return {"name": "Fixed", "client": dict(self._client), "server": dict(self._server), **clients}


def _setting_text(setting: Any) -> str:
    """Return a setting in a few words.

    >>> _setting_text({"name": "FedOpt", "optimizer": "adam", "local": []}), _setting_text("job")
    ("FedOpt(optimizer='adam', local=[])", "'job'")
    """
    if not isinstance(setting, Mapping):
        return repr(setting)
    return f"{setting.get('name')}({', '.join(f'{n}={value!r}' for n, value in setting.items() if n != 'name')})"


def _client_number(key: Any) -> int:
    if isinstance(key, str) and key.isdecimal():
        return int(key)
    return whole("a client's number in `clients`", key, low=0)
