"""FedTuning: courses of real runs, recomputed from their tables by the rule written down once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import Devices, FedTuning
from lightning_fedhpo.testing import toy_data
from tests.fits import fit

ROUNDS, CLIENTS = 12, 8


def course(fed: Any, preference: list[float], gain: float, penalty: float, most: tuple[int, int]) -> list[list[int]]:
    """Cohort and epochs after every round, by the published program: names are its names."""
    a, b, c, d = preference
    maximise = fed.result.history["score"][-1] == fed.result.history["val/val_acc_personalized"][-1]
    m, e, found = 3, 2, []
    accuracy = 0.0 if maximise else None
    spent, prv, save, prv_size = np.zeros(4), None, np.zeros(4), (0, 0)
    eta, zeta = dict.fromkeys("tqzv", 1e9), dict.fromkeys("tqzv", 1e9)
    for row in fed.result.history:
        jobs = [job for job in fed.result.jobs if job["round"] == row["round"]]
        assert len(jobs) == m and {job["epochs"] for job in jobs} == {e}
        size = row["ledger/bytes_up"] / row["ledger/client_updates"]
        examples = [job["train_examples"] * e for job in jobs]
        times = [job.get("seconds") or count for job, count in zip(jobs, examples, strict=True)]
        spent = spent + [max(times), 2 * size, sum(examples), 2 * size * m]
        now = row["score"] if maximise else -row["score"]
        if accuracy is None:
            accuracy = now
        elif now - accuracy > gain:
            cur = spent / (now - accuracy)
            if prv is not None:
                t, q, z, v = abs(cur - prv) / abs(prv - save)
                g = a * (cur - prv)[0] / cur[0] + b * (cur - prv)[1] / cur[1]
                g += c * (cur - prv)[2] / cur[2] + d * (cur - prv)[3] / cur[3]
                worse = penalty if g > 0 else 1.0
                if m > prv_size[0]:
                    eta |= {"t": t, "q": q, "z": eta["z"] * worse, "v": eta["v"] * worse}
                else:
                    eta |= {"z": z, "v": v, "t": eta["t"] * worse, "q": eta["q"] * worse}
                if e > prv_size[1]:
                    zeta |= {"q": q, "v": v, "t": zeta["t"] * worse, "z": zeta["z"] * worse}
                else:
                    zeta |= {"t": t, "z": z, "q": zeta["q"] * worse, "v": zeta["v"] * worse}
                x = abs(cur - prv) / cur
                delta_m = a * eta["t"] * x[0] + b * eta["q"] * x[1] - c * eta["z"] * x[2] - d * eta["v"] * x[3]
                delta_e = -a * zeta["t"] * x[0] + b * zeta["q"] * x[1] - c * zeta["z"] * x[2] + d * zeta["v"] * x[3]
                prv_size = (m, e)
                m = min(m + 1, most[0]) if delta_m > 0 else max(m - 1, 1)
                e = min(e + 1, most[1]) if delta_e > 0 else max(e - 1, 1)
                save = prv
            else:
                prv_size = (m, e)
            prv, spent, accuracy = cur, np.zeros(4), now
        found.append([m, e])
    return found


@pytest.mark.parametrize(
    ("preference", "options"),
    [
        ([1.0, 0.0, 0.0, 0.0], {}),
        ([0.0, 0.0, 0.5, 0.5], {}),
        ([0.1, 0.2, 0.3, 0.4], {"mode": "max", "monitor": "val_acc"}),
    ]
    + [([0.0, 1.0, 0.0, 0.0], {}), ([0.3, 0.0, 0.7, 0.0], {"devices": Devices(spread=1.0)})],
)
def test_the_course_is_the_programs(preference: list[float], options: dict[str, Any]) -> None:
    tuner = FedTuning(preference, epochs=2, gain=0.004, penalty=3.0, most_epochs=4, most_clients=6)
    fed, _, _ = fit(
        ROUNDS, tuner, data=toy_data(clients=CLIENTS), cohort=3, verify=False, **{"monitor": "val_loss"} | options
    )
    wanted = course(fed, preference, 0.004, 3.0, (6, 4))
    found = [[row["fedtuning/cohort"], row["fedtuning/epochs"]] for row in fed.result.history]
    assert found == wanted
    assert len({tuple(one) for one in found}) >= 3
    assert fed.result.best["client"]["epochs"] == wanted[-1][1]


def test_what_cannot_be_is_refused() -> None:
    for wrong, says in (
        ({"preference": (1, 0, 0)}, "`preference` must be four numbers"),
        ({"preference": (0, 0, 0, 0)}, "not all 0"),
        ({"epochs": 9, "most_epochs": 3}, "`epochs`"),
        ({"gain": 0.0}, "`gain` must be above 0"),
        ({"penalty": 0.5}, "`penalty`"),
    ):
        with pytest.raises(ValueError, match=says):
            FedTuning(**wrong)  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="name a `monitor`"):
        fit(1, FedTuning(), monitor=None)
