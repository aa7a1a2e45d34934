"""The records of a run: ledger, rows of rounds and jobs, warnings about dropped clients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.files.table import Cell, Table
from lightning_fedhpo.participation import NoisyScores
from lightning_fedhpo.run.ledger import Ledger
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.rows import RETRAIN, is_unscored, job_row, round_row
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.types import ClientResult


class Records:
    """The ledger, history and jobs of a run.

    The rows of the present round are kept apart until it ends: a checkpoint from inside the round thus knows which arms
    are aggregated already.
    """

    def __init__(self, options: LoopOptions) -> None:
        self._options = options
        self.ledger, self.retraining = Ledger(), Ledger()
        self.history, self.jobs = Table(), Table()
        self.rows: dict[int, dict[str, Cell]] = {}
        self.releases: Counter[int] = Counter()
        self._dropped: list[ClientResult] = []
        self._unscored: list[int] = []
        self._told_unscored = False

    def take_score(self, arm: Arm, score: float, results: Sequence[ClientResult]) -> None:
        """Give an arm its score of a round; it stays if nothing arrived, or nobody has validation examples."""
        unscored = self._options.monitor is not None and is_unscored(results, self._options.target)
        if unscored:
            self._unscored.append(arm.index)
        stays = unscored or all(one.job.lost for one in results)
        arm.scores.append(arm.scores[-1] if arm.scores and stays else score)

    def record_round(
        self,
        number: int,
        arm: Arm,
        results: Sequence[ClientResult],
        on_server: Mapping[str, float],
        settings: Mapping[str, Cell],
        *,
        cohort: int,
        models_received: int = 0,
    ) -> None:
        """Record the costs and the results of an arm's round."""
        ledger = self.retraining if arm.retrains else self.ledger
        ledger.add(results, arm.nbytes, models_received, arm.nbytes_broadcast)
        if (devices := self._options.devices) is not None:
            ledger.seconds += devices.round_seconds([result.job for result in results], cohort)
        for result in results:
            self.jobs.append(job_row(result))
        self.rows[arm.index] = round_row(number, arm, results, on_server, settings)
        if self._options.retrain:
            self.rows[arm.index]["phase"] = "retrain" if arm.retrains else "search"
        self._dropped += [result for result in results if not result.finite and result.job.lost is None]

    def count_releases(self, noise: NoisyScores | Search, arm: Arm, clients: Iterable[int]) -> None:
        """Count private scores, and put what they cost the client with the most of them on the ledger."""
        self.releases.update(clients)
        ledger = self.retraining if arm.retrains else self.ledger
        ledger.epsilon = noise.spent(max(self.releases.values(), default=0))
        ledger.epsilon_per_release, ledger.delta = noise.epsilon or 0.0, noise.delta or 0.0

    @property
    def spent(self) -> int:
        """The rounds of all arms, those after the search too."""
        return self.ledger.rounds + self.retraining.rounds

    @property
    def client_updates(self) -> int:
        """The jobs done for good, those after the search too."""
        return self.ledger.client_updates + self.retraining.client_updates

    def add_figures(self, arm: Arm, figures: Mapping[str, float]) -> None:
        """Add a tuner's figures and the ledger to an arm's row."""
        row = self.rows[arm.index]
        row |= {f"ledger/{name}": count for name, count in self.ledger.as_dict().items()} | dict(figures)
        if arm.retrains:
            row |= {f"{RETRAIN}{name}": count for name, count in self.retraining.as_dict().items()}

    def close(self, best: int, live: int, tested: Mapping[str, float]) -> list[dict[str, Cell]]:
        """Close a round and return its rows.

        A best arm that rests since an earlier round has no row in this one: the first row stands in for it.
        """
        rows = list(self.rows.values())
        self.rows.get(best, rows[0]).update({"best": True, **tested})
        for row in rows:
            row["arms/live"] = live
            self.history.append(row)
        self.rows = {}
        return rows

    @property
    def rounds(self) -> int:
        """How many rounds are closed."""
        return self.history[-1]["round"] + 1 if len(self.history) else 0

    @property
    def rounds_without_finite_client(self) -> int:
        """The number of rounds since the last one in which a client of any arm was finite."""
        came = ((row, row["clients"] - (row.get("lost") or 0)) for row in reversed(self.history))
        with_finite_client = (row["round"] for row, clients in came if row["dropped"] < max(1, clients))
        return self.rounds - 1 - next(with_finite_client, -1)

    def closed(self) -> Iterator[list[dict[str, Cell]]]:
        """Yield every closed round's rows."""
        return (list(rows) for _, rows in groupby(self.history, key=lambda row: row["round"]))

    def warn_of_dropped(self, number: int, jobs: int) -> None:
        """Say once a round which clients were left out, and why, or that there were none."""
        self._warn_of_unscored(number)
        if not jobs:
            rank_zero_warn(f"no client was available in round {number}: it is empty, and models and scores stay.")
        elif all(row["clients"] == (row.get("lost") or 0) for row in self.rows.values()):
            rank_zero_warn(f"no work of round {number} has arrived: {jobs} jobs are lost, and models and scores stay.")
        failed = [result for result in self._dropped if result.error]
        diverged = [result for result in self._dropped if not result.error]
        self._dropped = []
        for result in failed:
            rank_zero_warn(f"{result.error} It is left out of the aggregate.")
        if diverged:
            clients = ", ".join(str(result.job.client) for result in diverged[:5])
            rank_zero_warn(
                f"{len(diverged)} of {jobs} clients of round {number} came back with a loss or weights that are not "
                f"finite (clients {clients}{', ...' if len(diverged) > 5 else ''}): they are left out of the "
                "aggregate. A smaller learning rate helps."
            )

    def _warn_of_unscored(self, number: int) -> None:
        """Say after the first round in which arms get no score what is missing."""
        arms, self._unscored = self._unscored, []
        server: list[Any] = [row["score"] for row in self.rows.values() if self._options.target == "server"]
        if self._told_unscored or not (arms or (server and not any(map(math.isfinite, server)))):
            return
        self._told_unscored = True
        if server:
            rank_zero_warn(
                f"the server's examples gave no arm of round {number} a finite {self._options.monitor}: look for "
                "values that are not finite in `server_data`, and in what `validation_step` logs."
            )
            return
        which = f"arm {arms[0]}" if len(arms) == 1 else f"{len(arms)} arms"
        rank_zero_warn(
            f"nobody who took part in round {number} of {which} has validation examples, so it has no score: its last "
            "one stays, and an arm without any comes last. Take a larger cohort, raise the second of `fractions`, or "
            'score on the server\'s examples (server_data=..., target="server").'
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is written down."""
        return {
            "ledger": self.ledger.as_dict(),
            "retraining": self.retraining.as_dict(),
            "history": self.history.state_dict(),
            "jobs": self.jobs.state_dict(),
            "rows": {index: dict(row) for index, row in self.rows.items()},
            "releases": dict(self.releases),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what a checkpoint has."""
        self.ledger, self.retraining = Ledger(**saved["ledger"]), Ledger(**saved["retraining"])
        self.history, self.jobs = Table.from_state(saved["history"]), Table.from_state(saved["jobs"])
        self.releases = Counter(saved["releases"])
        self.rows = {int(index): dict(row) for index, row in saved["rows"].items()}
