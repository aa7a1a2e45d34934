"""Scores of a part of the cohort, biased, with noise; what they cost; and who sees them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop, FedEx, FedPop, NoisyScores, RandomSearch, SuccessiveHalving, testing, tuners
from lightning_fedhpo.testing import toy_data, toy_tensors
from lightning_fedhpo.testing.contract_runs import toy_space
from lightning_fedhpo.types import ClientResult, Job
from tests.fits import fit, same

TIMES = 4000
EVERY = [getattr(tuners, name) for name in tuners.__all__ if name != "Tuner"]


def of_client(client: int, after: float | None, before: float | None = None) -> ClientResult:
    return ClientResult(Job(0, 0, client, {}), (), (), (), {}, 10, 5 + client, 1, 10, 5, before, after)


def releases(noise: NoisyScores, scores: list[float], alone: bool) -> list[Any]:
    """What is seen of the same scores, with many generators."""
    results = [of_client(i, score) for i, score in enumerate(scores)]
    draws = (np.random.default_rng(i) for i in range(TIMES))
    return [noise.release(results, "personalized", False, alone, 1.0, draw) for draw in draws]


def test_a_laplace_mean_has_the_noise_of_the_range_over_the_subset() -> None:
    """Scores are clipped to 0 and 2; E|x| of Laplace noise is its scale, and so is the deviation of |x|."""
    seen = releases(NoisyScores(range=(0, 2), epsilon=0.5), [-7.0, 0.5, 1.5, 9.0], alone=False)
    exact, scale = (0 + 0.5 + 1.5 + 2) / 4, 2 / 4 / 0.5
    noise = np.array([one.score - exact for one in seen])
    assert np.abs(noise).mean() == pytest.approx(scale, abs=4 * scale / math.sqrt(TIMES))
    assert noise.mean() == pytest.approx(0, abs=4 * math.sqrt(2) * scale / math.sqrt(TIMES))
    assert all(one.clients == [0, 1, 2, 3] for one in seen)
    assert all(result.score_after is None for one in seen for result in one.results)  # nobody sees a single one


def test_single_scores_have_the_noise_of_the_whole_range() -> None:
    seen = releases(NoisyScores(range=(0, 2), epsilon=0.5), [-7.0, 0.5, 1.5, 9.0], alone=True)
    scores = np.array([[result.score_after for result in one.results] for one in seen])
    scale = 2 / 0.5
    assert np.abs(scores - [0, 0.5, 1.5, 2]).mean(0) == pytest.approx(scale, abs=4 * scale / math.sqrt(TIMES))
    assert [one.score for one in seen] == pytest.approx(scores.mean(1))  # computed from what was released
    assert np.corrcoef(scores.T)[0, 1:] == pytest.approx(0, abs=4 / math.sqrt(TIMES))


def test_both_scores_of_a_client_are_two_releases() -> None:
    results = [of_client(0, 0.5, 0.7), of_client(1, None, None)]
    seen = NoisyScores(range=(0, 1), epsilon=1).release(results, "global", True, True, 1.0, np.random.default_rng(0))
    assert seen.clients == [0, 0] and seen.score == seen.results[0].score_before != 0.7
    assert seen.results[0].score_after != 0.5 and seen.results[1].score_after is None


def leaks(deviation: float, epsilon: float) -> float:
    """The delta of Gaussian noise on a score between 0 and 1: theorem 8 of Balle and Wang (2018)."""

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    half, far = 1 / (2 * deviation), epsilon * deviation
    return normal(half - far) - math.exp(epsilon) * normal(-half - far)


def test_gaussian_noise_by_its_formula() -> None:
    noise = NoisyScores(range=(0, 1), epsilon=0.7, delta=1e-5, mechanism="gaussian")
    deviation = noise.scale(1)
    assert leaks(deviation, 0.7) == pytest.approx(1e-5, rel=1e-3)
    # Together, releases are one with less noise: the sum over independent normals, scaled.
    assert leaks(deviation / math.sqrt(20), noise.spent(20)) == pytest.approx(1e-5, rel=1e-3)
    assert noise.spent(1) == pytest.approx(0.7, rel=1e-4) and noise.spent(20) < 20 * 0.7 and noise.spent(0) == 0
    drawn = np.array([one.score - 0.5 for one in releases(noise, [0.5] * 5, alone=False)])
    assert drawn.std() == pytest.approx(deviation / 5, rel=4 / math.sqrt(2 * TIMES))


def test_gaussian_releases_together_by_the_sum_of_their_privacy_losses() -> None:
    """Of an output x the loss is ``(2 x - 1) / (2 sigma^2)``; that of four outputs is a convolution."""
    noise = NoisyScores(range=(0, 1), epsilon=0.7, delta=1e-5, mechanism="gaussian")
    x = np.linspace(-8, 8, 4001) * noise.scale(1)
    step = x[1] - x[0]
    of_one = np.exp(-0.5 * ((x - 1) / noise.scale(1)) ** 2)
    of_four = np.convolve(pair := np.convolve(of_one, of_one), pair)
    sums = 4 * x[0] + step * np.arange(len(of_four))
    losses = (2 * sums - 4) / (2 * noise.scale(1) ** 2)
    excess = (of_four / of_four.sum()) @ np.maximum(0.0, 1 - np.exp(np.minimum(0.0, noise.spent(4) - losses)))
    assert excess == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-9, 1e-30), (1e-3, 0.999), (1e3, 1e-9), (1e200, 1e-5)])
def test_gaussian_noise_of_extreme_settings_is_finite(epsilon: float, delta: float) -> None:
    noise = NoisyScores(range=(0, 1), epsilon=epsilon, delta=delta, mechanism="gaussian")
    assert 0 < noise.scale(1) < math.inf and 0 < noise.spent(1) <= epsilon * (1 + 1e-3)


@pytest.mark.parametrize(
    ("clients", "of_ten"),
    [(None, 10), (1, 1), (3, 3), (99, 10), (1.0, 10), (0.5, 5), (0.7, 7), (0.01, 1)]
    + [(np.int64(3), 3), (np.float32(0.5), 5)],
)
def test_the_size_of_the_subset(clients: int | float | None, of_ten: int) -> None:
    rng = np.random.default_rng(0)
    assert len(set(NoisyScores(clients=clients).subset([0.5] * 10, 1.0, rng))) == of_ten


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_bias_is_a_power_of_goodness(sign: float) -> None:
    """One of four clients, with accuracies 0, 0.5, 0.8 and 1; three deviations of the share."""
    accuracy = np.array([0.0, 0.5, 0.8, 1.0])
    scores = list(1 - accuracy if sign > 0 else accuracy)
    noise = NoisyScores(clients=1, bias=1.5, range=(0, 1))
    count = Counter(noise.subset(scores, sign, np.random.default_rng(i))[0] for i in range(TIMES))
    share = (accuracy + 1e-4) ** 1.5 / ((accuracy + 1e-4) ** 1.5).sum()
    assert all(abs(count[i] / TIMES - p) <= 3 * math.sqrt(p * (1 - p) / TIMES) for i, p in enumerate(share))


def test_a_subset_without_privacy_is_weighted_by_examples_and_the_order_of_results_is_nothing() -> None:
    results = [of_client(i, 0.1 * i) for i in range(8)]
    noise = NoisyScores(clients=3, range=(0.2, 1))
    one, other = (
        noise.release(given, "personalized", False, False, 1.0, np.random.default_rng(1))
        for given in (results, results[::-1])
    )
    seen = {result.job.client: result.score_after for result in one.results if result.score_after is not None}
    assert seen == {i: max(0.2, 0.1 * i) for i in seen} and len(seen) == 3 and one.clients == []
    assert one.score == pytest.approx(sum((5 + i) * score for i, score in seen.items()) / sum(5 + i for i in seen))
    assert other.score == pytest.approx(one.score)


def test_all_scores_without_noise_are_the_run_without() -> None:
    def fitted(**options: Any) -> Any:
        return fit(4, RandomSearch(toy_space(), budget=12, max_rounds=4), FedPop(toy_space()), **options)

    (plain, _, module), (fed, _, other) = fitted(), fitted(noise=NoisyScores())
    assert same(module, other) and fed.result.jobs == plain.result.jobs and fed.result.ledger == plain.result.ledger
    columns = fed.result.history.to_dict()
    assert columns.pop("score_exact") == columns["score"] and columns == plain.result.history.to_dict()


@pytest.mark.parametrize("kind", EVERY)
def test_every_tuner_runs_with_noise_and_the_ledger_counts(kind: Callable[..., Any]) -> None:
    """All clients have validation examples and are asked, so a client's epsilon is that of its jobs."""
    tuner = testing.toy_instance(kind)
    everyone: dict[str, Any] = {"cohort": 8, "server_data": toy_tensors(30)} if tuner.needs_everyone else {}
    own = [RandomSearch(toy_space(), budget=12, max_rounds=4)] if tuner.server_names else []
    fed, _, _ = fit(4, tuner, *own, noise=NoisyScores(range=(0, 3), epsilon=0.25), **everyone)
    result = fed.result
    most = Counter(result.jobs["client"]).most_common(1)[0][1]
    assert result.ledger["epsilon"] == pytest.approx(0.25 * most) == result.history[-1]["ledger/epsilon"]
    assert result.ledger["epsilon_per_release"] == 0.25 and "delta" not in result.ledger
    rows = [row for row in result.jobs if row["round"] == 0 and row["arm"] == 0]
    weights = [row["val_examples"] for row in rows]
    exact = np.average([row["score_after"] for row in rows], weights=weights)
    assert result.history[0]["score_exact"] == pytest.approx(exact) and result.history[0]["score"] != exact


def test_tuner_and_search_see_the_noise_and_nothing_else() -> None:
    """Under enormous noise two runs whose clients' scores differ in nothing but noise go apart."""
    noises = [NoisyScores(range=(0, 3), epsilon=epsilon) for epsilon in (9, 0.01)]
    few, many = (fit(4, FedEx(toy_space(), configs=3), noise=noise)[0] for noise in noises)
    assert np.abs(few.result.history["score"]).max() < 10 < np.abs(many.result.history["score"]).max()
    assert few.result.history["fedex/entropy"] != many.result.history["fedex/entropy"]
    first = [fed.result.history[0]["score_exact"] for fed in (few, many)]
    assert first[0] == first[1] == few.result.history[0]["val/val_loss_personalized"]


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_resume_is_bitwise(tmp_path: Path) -> None:
    def fitted(folder: str, path: Path | None = None, epsilon: float = 1.0) -> FederatedLoop:
        noise = NoisyScores(clients=2, bias=1, range=(0, 3), epsilon=epsilon)
        search = SuccessiveHalving(toy_space(), eta=2, eliminations=1, budget=9, max_rounds=6)
        every = ModelCheckpoint(tmp_path / folder, filename="{epoch}", save_top_k=-1)
        return fit(6, search, FedEx(toy_space(), configs=3), every, noise=noise, path=path)[0]

    whole, saved = fitted("whole"), tmp_path / "whole" / "epoch=2.ckpt"
    resumed = fitted("resumed", saved)
    assert resumed.result.history == whole.result.history and resumed.result.ledger == whole.result.ledger
    with pytest.raises(ValueError, match=r"noise.epsilon: 1.0 there, 2.0 here"):
        fitted("other", saved, epsilon=2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"range": (0, 1), "epsilon": 0}, "`epsilon` must be above 0, got 0"),
        ({"range": (0, 1), "epsilon": -1.0}, "above 0, got -1.0"),
        ({"epsilon": 1.0}, "`epsilon` needs the `range`"),
        ({"bias": 1.0}, "`bias` needs the `range`"),
        ({"range": (1, 0)}, r"in this order, got \(1.0, 0.0\)"),
        ({"range": (0, 1, 2)}, "smallest and the largest"),
        ({"range": (0, math.inf)}, "finite"),
        ({"range": (0, 1), "epsilon": 1.0, "mechanism": "gaussian"}, "needs `epsilon` and `delta`, got 1.0 and None"),
        ({"range": (0, 1), "epsilon": 1.0, "delta": 1e-5}, "Laplace noise has no `delta`"),
        ({"range": (0, 1), "epsilon": 1.0, "delta": 1.0, "mechanism": "gaussian"}, r"in \(0, 1\), got 1.0"),
        ({"mechanism": "uniform"}, "'laplace', 'gaussian'"),
        ({"clients": 0}, "at least 1, got 0"),
        ({"clients": 1.5}, "a whole number is a count"),
        ({"bias": -1}, "`bias`"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyScores(**arguments)


def test_noise_on_scores_that_nobody_sees_is_refused() -> None:
    with pytest.raises(ValueError, match="`monitor=None` does without"):
        fit(1, noise=NoisyScores(), monitor=None)
    with pytest.raises(MisconfigurationException, match="neither the arms"):
        fit(1, noise=NoisyScores(), target="server", data=toy_data(server_fraction=0.2))
