"""Small modules that differ from the plain one in one thing each: what an untouched module may look like."""

from tests.modules.zoo import batches, hooks, layers, logs, optimizers
from tests.modules.zoo.base import Case

CASES: dict[str, Case] = {**optimizers.CASES, **hooks.CASES, **layers.CASES, **batches.CASES, **logs.CASES}
