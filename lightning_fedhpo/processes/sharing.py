"""A round of several processes: who runs which jobs, and how their results become one round again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import heapreplace
from operator import attrgetter
from typing import Any

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.state_files import ClientState
from lightning_fedhpo.processes.collectives import all_reduce_in_place
from lightning_fedhpo.processes.failures import fail_together
from lightning_fedhpo.processes.members import rank, world
from lightning_fedhpo.types import ClientResult, Job

TOLERANCE = 1.03
"""Whole arms are handed out if the busiest process then has at most so many times the mean work."""


def divide_jobs(arms: Sequence[int], costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Share jobs among processes: whole arms if that balances, job by job otherwise.

    Args:
        arms: Every job's arm.
        costs: Every job's work.
        ranks: How many processes there are.

    Returns:
        The places of every process's jobs, in their order.

    >>> divide_jobs([0, 0, 1, 1], [2, 2, 2, 2], 2), divide_jobs([0, 0, 0, 0], [1, 5, 2, 2], 2), divide_jobs([0], [1], 2)
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
    """Give the heaviest parcel that is left to the process with the least work, until none is left."""
    weights = [sum([costs[place] for place in parcel]) for parcel in parcels]
    shares = [list[int]() for _ in range(ranks)]
    # Break ties by the number of jobs: those without a step to train are not for one process alone.
    idlest = [(0.0, 0, one) for one in range(ranks)]
    for number in sorted(range(len(parcels)), key=lambda number: (-weights[number], number)):
        load, jobs, one = idlest[0]
        heapreplace(idlest, (load + weights[number], jobs + len(parcels[number]), one))
        shares[one] += parcels[number]
    return [sorted(places) for places in shares]


@dataclass(frozen=True)
class ProcessResults:
    """What a process sends after a round, beside its sums.

    Attributes:
        results: The fields in :data:`_SENT` of its results, by the jobs' places in the round.
        totals: The weight behind the sums of every arm that has any.
        arrived: What clients will keep, by arm, client and name.
    """

    results: Mapping[int, Sequence[Any]]
    totals: Mapping[int, float]
    arrived: Mapping[int, Mapping[int, ClientState]]


_OWN = ("job", "weights", "buffers", "personal", "handed")
_SENT = [field.name for field in fields(ClientResult) if field.name not in _OWN]
"""The fields of a result that other processes are told, in their order; they know the job."""
_values: Callable[[ClientResult], tuple[Any, ...]] = attrgetter(*_SENT)


def shared_round(
    jobs: Sequence[Job],
    arms: Mapping[int, Arm],
    train: Callable[[Sequence[Job], Mapping[int, Arm]], Iterable[ClientResult]],
    cost: Callable[[Job], float],
    check: Callable[[], None],
) -> Iterable[ClientResult]:
    """Run a round's jobs in all processes of the run, and return the results in the order of the jobs.

    One process gets every result as soon as its job is done. Several get all results at the end, and the arms hold
    everybody's sums then.

    Args:
        jobs: The jobs of the round, the same in every process.
        arms: The arms in it, by their numbers.
        train: Trains clients and adds what they send to the arms.
        cost: Estimates a job's work.
        check: Raises if the run must end; called between jobs, if there are several processes.
    """
    return train(jobs, arms) if world() == 1 else _combined(jobs, arms, train, cost, check)


def _combined(
    jobs: Sequence[Job],
    arms: Mapping[int, Arm],
    train: Callable[[Sequence[Job], Mapping[int, Arm]], Iterable[ClientResult]],
    cost: Callable[[Job], float],
    check: Callable[[], None],
) -> list[ClientResult]:
    own = divide_jobs([job.arm for job in jobs], [cost(job) for job in jobs], world())[rank()]
    with fail_together(f"round {jobs[0].round if jobs else -1}") as answers:
        check()
        results = {}
        for result, place in zip(train([jobs[place] for place in own], arms), own, strict=True):
            results[place] = _values(result)
            check()
        totals = {index: arm.total for index, arm in arms.items() if arm.total is not None}
        answers.own = ProcessResults(results, totals, {index: _on_cpu(arm.arrived) for index, arm in arms.items()})
    sums = [arm.sums() for arm in arms.values()]
    all_reduce_in_place(*([tensor for kinds in sums for tensor in kinds[kind]] for kind in (0, 1)))
    _set_totals(arms, answers.all)
    every = {place: values for one in answers.all for place, values in one.results.items()}
    return [
        ClientResult(job, (), (), (), **dict(zip(_SENT, every[place], strict=True))) for place, job in enumerate(jobs)
    ]


def _set_totals(arms: Mapping[int, Arm], found: Sequence[ProcessResults]) -> None:
    """Give every arm the total weight and the clients' states of all processes; discard arms without a result."""
    for index, arm in arms.items():
        weights = [one.totals[index] for one in found if index in one.totals]
        if weights:
            arm.take(sum(weights), {client: kept for one in found for client, kept in one.arrived[index].items()})
        else:
            arm.discard()


def _on_cpu(arrived: Mapping[int, ClientState]) -> dict[int, ClientState]:
    return {
        client: {name: [tensor.cpu() for tensor in tensors] for name, tensors in state.items()}
        for client, state in arrived.items()
    }
