"""Whether a module's batches are to have channels innermost, so that its convolutions are faster.

Convolutions hand the layout of what they are given on to what they return, so it is enough to lay batches out. Their
numbers stay the same, and where the module minds the layout (it reshapes by ``view``, say) they are left as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from lightning_fedhpo.arm import Arm
from lightning_fedhpo.executors.dropout import HashedDropout
from lightning_fedhpo.executors.sequential import STEPS_COMPARED, SequentialExecutor, apart
from lightning_fedhpo.types import Config, Job, RoundContext

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm

TOLERANCE_OF_IMAGES = 1e-3
"""How far apart weights under convolutions may be that were trained in two ways, of the way that they moved: of a
million numbers one or two lie so near to zero, or to the maximum beside them, that their gradients go elsewhere when
they are rounded otherwise."""


def gain(executor: SequentialExecutor, algorithm: Algorithm, client: int, config: Config) -> bool:
    """Return whether a module's convolutions gain from such batches, and its results are the same with them."""
    local, state = executor.local, executor.state
    layers = list(local.module.modules())
    if not any(isinstance(layer, nn.Conv2d) for layer in layers) or not all(tensor.is_cpu for tensor in state.weights):
        return False
    if any(isinstance(layer, nn.InstanceNorm2d) for layer in layers):  # slower on them
        return False
    arm = Arm(0, algorithm, {}, state.weights, state.buffers)
    job, context, ends = Job(0, 0, client, config), RoundContext(0, 0, needs_before=False), []
    try:
        for inside in (False, True):
            local.channels_inside = inside
            with executor.briefly(STEPS_COMPARED), HashedDropout(traced=False):  # masks would not be the same
                result = executor.run_job(job, arm, context)
            if not result.finite:
                return False
            ends.append([tensor.detach().clone() for tensor in result.weights])
    except Exception:
        return False  # a module that minds; or it fails in any case, and the run will say so
    finally:
        local.channels_inside = False
        executor.show(arm)
    return apart(ends[1], ends[0], arm.weights) <= TOLERANCE_OF_IMAGES
