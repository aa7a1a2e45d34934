"""Images with channels innermost, so that a module's convolutions are faster.

Convolutions hand on the layout of their input, so it is enough to lay out batches. Numbers stay the same up to
rounding; if a module depends on the layout, its batches are left as they are.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.vectorized.dropout import HashedDropout
from lightning_fedhpo.executors.vectorized.equivalence import TOLERANCE_OF_IMAGES, different_figure, relative_distance
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext


def lay_out_images(bench: Workbench, client: int, config: Config) -> None:
    """Lay out a module's images so, if it has convolutions that gain, and trains the same: ``x.view`` may fail then."""
    local, layers = bench.local, list(bench.local.module.modules())
    if not any(isinstance(layer, nn.Conv2d) for layer in layers) or not bench.state.weights[0].is_cpu:
        return
    if any(isinstance(layer, nn.InstanceNorm2d) for layer in layers):  # slower on them
        return
    arm, job = bench.untrained_arm(), Job(0, 0, client, config)
    expected = _train_briefly(bench, job, arm)
    if expected is None:
        return
    local.channels_inside = True
    found = _train_briefly(bench, job, arm)
    if (
        found is None
        or relative_distance(found.weights, expected.weights, arm.weights) > TOLERANCE_OF_IMAGES
        or different_figure(found, expected, TOLERANCE_OF_IMAGES, TOLERANCE_OF_IMAGES) is not None
    ):
        local.channels_inside = False


def _train_briefly(bench: Workbench, job: Job, arm: Arm) -> ClientResult | None:
    try:
        with bench.briefly(), HashedDropout():  # no dropout: masks would not be the same
            result = bench.run_job(job, arm, RoundContext(0, 0, needs_before=False))
        return replace(result, weights=[w.detach().clone() for w in result.weights]) if result.finite else None
    except Exception:
        return None  # a module that minds; or it fails in any case, and the run will say so
    finally:
        bench.show(arm)
