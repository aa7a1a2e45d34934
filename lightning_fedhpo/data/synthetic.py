"""Generated federations: clients that differ in size, in what they see and in how they label it.

`synthetic_alpha_beta` is the set of Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020), which
LEAF has, too. `synthetic_classification` follows its idea: labels are the largest of some linear functions, and clients
differ in these functions and in where their inputs are. Deviation: clients share one linear map and add their own, so
that a single global model can learn something; in the paper's set each client's map is drawn on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import number, whole
from lightning_fedhpo.data.federation import FederatedData, check_seed
from lightning_fedhpo.data.partition import Natural


def synthetic_alpha_beta(
    alpha: float = 1.0,
    beta: float = 1.0,
    clients: int = 30,
    features: int = 60,
    classes: int = 10,
    *,
    size_mean: float = 4.0,
    size_spread: float = 2.0,
    min_size: int = 50,
    seed: int = 0,
    **more: Any,
) -> FederatedData:
    """Generate synthetic(alpha, beta): a client's inputs and its linear map are drawn on their own.

    A client's map has weights and offsets from N(u, 1) with its own u from N(0, alpha). Its inputs are from N(v, S): S
    is diagonal with the j-th variance j^-1.2, and the numbers of v are from N(B, 1) with its own B from N(0, beta).
    Labels are the largest of the map's values. `alpha` and `beta` are variances, as the paper has it; its program takes
    them for standard deviations, which is the same for 0 and 1.

    Args:
        alpha: How much clients' maps differ.
        beta: How much their inputs differ.
        clients: How many.
        features: The length of an input.
        classes: The number of labels.
        size_mean: A client has `min_size` and as many examples more as a log-normal number says: its logarithm's mean.
        size_spread: The standard deviation of that logarithm.
        min_size: The fewest examples of a client.
        seed: Draws everything.
        more: As for `synthetic_classification`.

    Example:
        >>> len(synthetic_alpha_beta(0.5, 0.5, clients=5, size_spread=0.5))
        5
    """
    number("size_mean", size_mean, 0, 12)
    amounts = {"alpha": alpha, "beta": beta, "size_spread": size_spread}
    _check(classes, amounts, clients=clients, features=features, min_size=min_size)
    rng = seeding.rng(check_seed(seed), seeding.SYNTHETIC)
    sizes = min_size + rng.lognormal(size_mean, size_spread, clients).astype(np.int64)
    u, centre = np.sqrt(alpha) * rng.standard_normal(clients), np.sqrt(beta) * rng.standard_normal(clients)
    spread = np.arange(1, features + 1) ** -0.6  # the root of the variance
    inputs, labels = [], []
    for client, size in enumerate(sizes.tolist()):
        weights = u[client] + rng.standard_normal((features, classes))
        offsets = u[client] + rng.standard_normal(classes)
        v = centre[client] + rng.standard_normal(features)
        x = v + spread * rng.standard_normal((size, features))
        inputs.append(x.astype(np.float32))
        labels.append((x @ weights + offsets).argmax(axis=1))
    tensors = torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(labels))
    return FederatedData(tensors, Natural(np.repeat(np.arange(clients), sizes)), seed=seed, **more)


def synthetic_classification(
    clients: int = 100,
    examples: int = 100,
    features: int = 20,
    classes: int = 5,
    *,
    concept: float = 0.5,
    shift: float = 0.5,
    noise: float = 0.5,
    size_spread: float = 0.6,
    min_size: int = 10,
    seed: int = 0,
    **more: Any,
) -> FederatedData:
    """Generate a classification problem whose clients differ.

    Args:
        clients: How many.
        examples: The mean number of examples per client.
        features: The length of an input; later features vary less.
        classes: The number of labels.
        concept: How much clients differ in how they label; 0 is one rule for all.
        shift: How much clients differ in where their inputs lie.
        noise: How random labels are; 0 makes them a function of the input.
        size_spread: How unequal sizes are: the standard deviation of their logarithm.
        min_size: The fewest examples of a client.
        seed: Draws everything.
        more: Further arguments of `FederatedData`: `fractions`, `batch_size`, `eval_batch_size`, `server_fraction`.

    Example:
        >>> data = synthetic_classification(clients=10, features=4)
        >>> x, y = data.examples(client=0).slice(0, 2)
        >>> x.shape, y.shape
        (torch.Size([2, 4]), torch.Size([2]))
    """
    amounts = {"concept": concept, "shift": shift, "noise": noise, "size_spread": size_spread}
    _check(classes, amounts, clients=clients, examples=examples, features=features, min_size=min_size)
    rng = seeding.rng(check_seed(seed), seeding.SYNTHETIC)
    owner = _owners(rng, clients, examples, min_size, size_spread)
    scale = np.arange(1, features + 1) ** -0.6  # variances fall as j^-1.2, as in the paper
    x = (shift * rng.standard_normal((clients, features)))[owner] + rng.standard_normal((len(owner), features))
    x *= scale
    shared = 3.0 * rng.standard_normal((features, classes))
    # A client adds a map of rank one and an offset to the shared map: no matrix per example is ever made.
    direction = rng.standard_normal((clients, features))
    effect, offset = rng.standard_normal((2, clients, classes))
    own = (x * direction[owner]).sum(axis=1, keepdims=True) * effect[owner] + offset[owner]
    y = (x @ shared + concept * own + noise * rng.gumbel(size=(len(owner), classes))).argmax(axis=1)
    tensors = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)
    return FederatedData(tensors, Natural(owner), seed=seed, **more)


def synthetic_images(
    clients: int = 50,
    examples: int = 60,
    size: int = 8,
    classes: int = 4,
    *,
    skew: float = 1.0,
    style: float = 0.3,
    noise: float = 0.5,
    size_spread: float = 0.6,
    min_size: int = 10,
    seed: int = 0,
    **more: Any,
) -> FederatedData:
    """Generate tiny grey images: a pattern per class, moved about, in a brightness and contrast of the client's own.

    `skew` says how unequally a client's labels are spread (0: all labels are equally likely), and `style` how much
    clients differ in brightness and contrast. `noise` is the standard deviation of the noise on every pixel; patterns
    have one of 1. Images have `size` x `size` pixels. The rest is as for `synthetic_classification`.
    """
    amounts = {"skew": skew, "style": style, "noise": noise, "size_spread": size_spread}
    _check(classes, amounts, clients=clients, examples=examples, size=size, min_size=min_size)
    rng = seeding.rng(check_seed(seed), seeding.SYNTHETIC)
    owner = _owners(rng, clients, examples, min_size, size_spread)
    taste = skew * rng.standard_normal((clients, classes))
    y = (taste[owner] + rng.gumbel(size=(len(owner), classes))).argmax(axis=1)
    # The neighbours' mean makes blobs that survive a move by one pixel.
    rough = rng.standard_normal((classes, size, size))
    tall = rough + np.roll(rough, 1, axis=1)
    patterns = (tall + np.roll(tall, 1, axis=2)) / 2.0
    down, right = rng.integers(-1, 2, size=(2, len(owner), 1, 1))
    grid = np.arange(size)
    images = patterns[y[:, None, None], (grid[:, None] + down) % size, (grid[None, :] + right) % size]
    contrast, brightness = np.exp(style * rng.standard_normal(clients)), style * rng.standard_normal(clients)
    images = contrast[owner, None, None] * images + brightness[owner, None, None]
    images += noise * rng.standard_normal(images.shape)
    tensors = torch.from_numpy(images[:, None].astype(np.float32)), torch.from_numpy(y)
    return FederatedData(tensors, Natural(owner), seed=seed, **more)


def _owners(rng: np.random.Generator, clients: int, examples: int, minimum: int, spread: float) -> NDArray[np.int64]:
    """Return an owner per example, sizes being log-normal with the given mean above the minimum."""
    if examples < minimum:
        got = f"got {examples} with min_size={minimum}"
        raise ValueError(f"`examples` is the mean size and must be at least `min_size`, {got}.")
    above = np.exp(spread * rng.standard_normal(clients) - spread**2 / 2)
    sizes = minimum + np.rint((examples - minimum) * above).astype(np.int64)
    return np.repeat(np.arange(clients), sizes)


def _check(classes: int, amounts: Mapping[str, float], **counts: int) -> None:
    for name, value in counts.items():
        whole(name, value)
    whole("classes", classes, low=2, why="with one there is nothing to tell apart")
    for name, amount in amounts.items():
        number(name, amount, 0, 10 if name in ("size_spread", "style") else 10**6)  # these two are exponents
