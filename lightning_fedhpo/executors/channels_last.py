"""Whether a module's batches are to have channels innermost, so that its convolutions are faster.

Convolutions hand the layout of what they are given on to what they return, so it is enough to lay batches out. Their
numbers stay the same, and where the module minds the layout they are left as they are.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from lightning_fedhpo.executors.sequential import STEPS_COMPARED, SequentialExecutor, apart
from lightning_fedhpo.executors.vectorized.dropout import HashedDropout
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.types import Config, Job, RoundContext

TOLERANCE_OF_IMAGES = 1e-3
"""How far apart weights under convolutions may be that were trained in two ways, of the way that they moved: of a
million numbers one or two lie so near to zero, or to the maximum beside them, that their gradients go elsewhere when
they are rounded otherwise."""


def lay_out_images(executor: SequentialExecutor, client: int, config: Config) -> None:
    """Have a module's images laid out so, where it has convolutions that gain and its results are the same.

    A module that fails on them, as it asks for a ``view`` that goes by the usual layout, is tried with copies in place
    of such views.
    """
    local, state = executor.local, executor.state
    layers = list(local.module.modules())
    if not any(isinstance(layer, nn.Conv2d) for layer in layers) or not all(tensor.is_cpu for tensor in state.weights):
        return
    if any(isinstance(layer, nn.InstanceNorm2d) for layer in layers):  # slower on them
        return
    arm = executor.untrained_arm()
    job = Job(0, 0, client, config)
    expected = _trained(executor, job, arm)
    if expected is None:
        return
    local.channels_inside = True
    found = _trained(executor, job, arm)
    if found is None:
        local.any_view = True
        found = _trained(executor, job, arm)
    if found is None or not _alike(found, expected, arm):
        local.channels_inside = local.any_view = False


Outcome = tuple[list[Tensor], dict[str, float]]
"""A client's weights, and what it logged."""


def _alike(one: Outcome, other: Outcome, arm: Arm) -> bool:
    figures = all(
        math.isclose(one[1].get(name, math.nan), value, rel_tol=TOLERANCE_OF_IMAGES, abs_tol=TOLERANCE_OF_IMAGES)
        for name, value in other[1].items()
        if math.isfinite(value)
    )
    return figures and apart(one[0], other[0], arm.weights) <= TOLERANCE_OF_IMAGES


def _trained(executor: SequentialExecutor, job: Job, arm: Arm) -> Outcome | None:
    """Train a client for a few steps, and score it; None where that fails."""
    try:
        with executor.briefly(STEPS_COMPARED), HashedDropout():  # masks would not be the same
            result = executor.run_job(job, arm, RoundContext(0, 0, needs_before=False))
        if not result.finite:
            return None
        logged = {"train": result.train, "val": result.after}
        figures = {f"{stage}/{name}": value for stage, several in logged.items() for name, value in several.items()}
        return [tensor.detach().clone() for tensor in result.weights], figures
    except Exception:
        return None  # a module that minds; or it fails in any case, and the run will say so
    finally:
        executor.show(arm)
