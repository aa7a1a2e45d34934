"""Every random draw of a run, as a pure function of where it happens.

A draw is named by ``(seed, stream, round, arm, client)`` and by nothing else: not by what was drawn before, by the
order of the jobs, or by which process runs them. That is why a resumed run needs no saved generator, and why adding
a client or a logger moves no other draw.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

MOST_SEED = 2**63 - 1

# The streams. A number, once given, keeps its meaning: changing one changes every published run.
PARTITION = 1  # which examples a client owns
SPLIT = 2  # which of a client's examples train, validate and test
COHORT = 3  # which clients take part in a round
BATCHES = 4  # the order of a client's training examples
USER = 5  # draws of the user's code while a client trains: dropout, augmentation
SPACE = 6  # configurations drawn from a search space
TUNER = 7  # a tuner's choices inside an arm
EVALUATION = 8  # which clients are evaluated, and the fine-tuning that evaluation does
MODEL = 9  # layers that get their weights at the first forward pass
SYNTHETIC = 10  # generated data sets
SERVER = 11  # which training examples are held out for the server
CONFIGS = 12  # the configurations that a tuner chooses among
ASKED = 13  # draws of a sampler that proposes configurations
AVAILABILITY = 14  # which clients can be had in a round, and their time zones
DEVICES = 15  # a device's speed, and whether it fails
SCORES = 16  # which scores are seen, and the noise on them
VOTES = 18  # the noise on clients' votes
MAPS = 17  # which example gets which feature map, and the draws of random maps


def key(seed: int, stream: int, round: int = 0, arm: int = 0, client: int = 0) -> int:  # noqa: A002 - the design's word
    """Return a 63-bit number that is a hash of the place of a draw.

    >>> key(0, COHORT, round=3) == key(0, COHORT, round=3), key(0, COHORT, round=3) == key(0, COHORT, round=4)
    (True, False)
    """
    place = struct.pack("<5q", seed, stream, round, arm, client)
    return int.from_bytes(blake2b(place, digest_size=8).digest(), "little") >> 1


def rng(seed: int, stream: int, round: int = 0, arm: int = 0, client: int = 0) -> np.random.Generator:  # noqa: A002
    """Return a fresh numpy generator for one place.

    >>> float(rng(0, COHORT).random()) == float(rng(0, COHORT).random())
    True
    """
    return np.random.Generator(np.random.PCG64(key(seed, stream, round, arm, client)))


def seed_user_code(value: int) -> None:
    """Seed the global generators that a user's own code draws from: torch's, numpy's and Python's.

    Only used inside :func:`preserved`, which puts them back.
    """
    if torch.cuda.is_available():  # pragma: no cover - no GPU where the suite runs
        torch.cuda.manual_seed_all(value)
    torch.default_generator.manual_seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    random.seed(value)


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the states of the global generators afterwards.

    >>> before = torch.get_rng_state()
    >>> with preserved():
    ...     _ = torch.rand(3)
    >>> bool((torch.get_rng_state() == before).all())
    True
    """
    states: Any = torch.get_rng_state(), random.getstate(), np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
        if cuda is not None:  # pragma: no cover - no GPU where the suite runs
            torch.cuda.set_rng_state_all(cuda)
