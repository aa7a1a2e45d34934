"""A round of several processes: who runs which jobs, and how what they found becomes one again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import heapreplace
from operator import attrgetter
from typing import Any

from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_fedhpo.processes.failures import alone, exchanged
from lightning_fedhpo.processes.members import rank, world
from lightning_fedhpo.run.arm import Arm, ClientState
from lightning_fedhpo.types import ClientResult, Job

TOLERANCE = 1.03
"""Whole arms are handed out where the busiest process then has at most so many times the mean work."""


def share(arms: Sequence[int], costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Share jobs among processes: whole arms where that balances, job by job otherwise.

    Args:
        arms: Every job's arm.
        costs: What every job takes.
        ranks: How many processes there are.

    Returns:
        The places of every process's jobs, in their order.

    >>> share([0, 0, 1, 1], [2, 2, 2, 2], 2), share([0, 0, 0, 0], [1, 5, 2, 2], 2), share([0], [1], 2)
    ([[0, 1], [2, 3]], [[1], [0, 2, 3]], [[0], []])
    """
    whole: dict[int, list[int]] = {}
    for place, arm in enumerate(arms):
        whole.setdefault(arm, []).append(place)
    ways = [list(whole.values()), [[place] for place in range(len(arms))]]
    for parcels in ways[len(whole) < ranks :]:
        shares = _packed(parcels, costs, ranks)
        busiest = max(sum(costs[place] for place in places) for places in shares)
        if 0 < busiest * ranks <= TOLERANCE * sum(costs):
            break
    return shares


def _packed(parcels: Sequence[Sequence[int]], costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Give the heaviest parcel that is left to the process with the least work, until none is."""
    weights = [sum([costs[place] for place in parcel]) for parcel in parcels]
    shares = [list[int]() for _ in range(ranks)]
    # Of equal loads the fewer jobs count: those without a step to train are not for one process alone.
    idlest = [(0.0, 0, one) for one in range(ranks)]
    for number in sorted(range(len(parcels)), key=lambda number: (-weights[number], number)):
        load, jobs, one = idlest[0]
        heapreplace(idlest, (load + weights[number], jobs + len(parcels[number]), one))
        shares[one] += parcels[number]
    return [sorted(places) for places in shares]


# ------------------------------------------------------------------ one round


@dataclass(frozen=True)
class Found:
    """What a process has found in a round, beside its sums.

    Attributes:
        results: What its jobs' results have in :data:`_SENT`, by the jobs' places in the round.
        totals: The weight behind the sums of every arm that has any.
        arrived: What clients will keep, by arm, client and name.
    """

    results: Mapping[int, Sequence[Any]]
    totals: Mapping[int, float]
    arrived: Mapping[int, Mapping[int, ClientState]]


_SENT = [field.name for field in fields(ClientResult) if field.name not in ("job", "weights", "buffers", "personal")]
"""What other processes are told of a result, in the order in which it is made of that; they know the job."""
_values: Callable[[ClientResult], tuple[Any, ...]] = attrgetter(*_SENT)


def combined(
    jobs: Sequence[Job],
    costs: Sequence[float],
    arms: Mapping[int, Arm],
    train: Callable[[Sequence[Job]], Iterator[ClientResult]],
) -> list[ClientResult]:
    """Train this process's share of a round, and return the results of all jobs in their order.

    The arms hold everybody's sums afterwards.

    Args:
        jobs: The jobs of the round, the same in every process.
        costs: What each takes.
        arms: The arms in it, by their numbers.
        train: Trains clients and adds what they send to the arms.
    """
    own = share([job.arm for job in jobs], costs, world())[rank()]
    results: dict[int, Sequence[Any]] = {}
    error: BaseException | None = None
    try:
        with alone():
            for result, place in zip(train([jobs[place] for place in own]), own, strict=True):
                results[place] = _values(result)
    except (Exception, SIGTERMException) as caught:
        error = caught
    mine = Found(
        results,
        {index: arm.total for index, arm in arms.items() if arm.total is not None},
        {index: _on_cpu(kept) for index, arm in arms.items() if (kept := arm.arrived)},
    )
    sums = [arm.sums() for arm in arms.values()]  # also where this process has failed: the others wait for them
    summed, largest = ([tensor for kinds in sums for tensor in kinds[kind]] for kind in (0, 1))
    found: list[Found] = exchanged(mine, error, f"round {jobs[0].round if jobs else -1}", summed, largest)
    _settle(arms, found)
    every = {place: values for one in found for place, values in one.results.items()}
    return [ClientResult(job, (), (), (), *every[place]) for place, job in enumerate(jobs)]


def _settle(arms: Mapping[int, Arm], found: Sequence[Found]) -> None:
    """Note what is behind the sums; where nobody had a result there are none."""
    for index, arm in arms.items():
        weights = [one.totals[index] for one in found if index in one.totals]
        if weights:
            arrived = {client: kept for one in found for client, kept in one.arrived.get(index, {}).items()}
            arm.take(sum(weights), arrived)
        else:
            arm.discard()


def _on_cpu(arrived: Mapping[int, ClientState]) -> dict[int, ClientState]:
    return {
        client: {name: [tensor.cpu() for tensor in tensors] for name, tensors in state.items()}
        for client, state in arrived.items()
    }
