"""MAML: the server follows the gradient of the clients' losses after local training.

Finn et al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017, decomposed as in appendix B
of the FedEx paper: a client trains by K local steps, takes the gradient of its loss at the end, and goes back to where
it began; the server's optimizer follows the weighted mean of these meta-gradients. First order takes the gradient as it
is. Second order carries it back through every step, ``b' = m b + g + d w`` and ``w' = w - lr b'``, by products with the
Hessian. The paper takes the gradient on validation examples. Scores are validation losses here, so the default is the
client's training examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import SGD

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import check_kinds

if TYPE_CHECKING:
    from lightning_fedhpo.client.local_run import LocalRun
    from lightning_fedhpo.client.training import Step


class Taken(NamedTuple):
    """A step that was taken: what the module held before it, its batch, and the generator's state.

    ``options`` has each parameter's options; of one that stayed where it was, None.
    """

    before: list[Tensor]
    batch: Any
    number: int
    generator: Tensor
    options: list[dict[str, float] | None]


class MAML(Algorithm):
    """Meta-learning of an initial model; its hyperparameters are those of local training and of FedAvg's server.

    Args:
        lr: The server's learning rate, on the meta-gradient.
        first_order: Take the gradient after local training as the meta-gradient. Second order keeps a copy of the
            model for every local step; it needs plain steps of SGD and a module that can be differentiated twice.
        query: The client's examples that the gradient is taken on; a client without validation examples takes those
            for training. The other arguments are FedAvg's.

    Example:
        >>> MAML(lr=0.1).server
        {'lr': 0.1, 'momentum': 0.0, 'decay': 0.0}
    """

    settings = ("first_order", "query")

    def __init__(
        self,
        lr: float = 0.1,
        momentum: float = 0.0,
        decay: float = 0.0,
        first_order: bool = True,
        query: Literal["train", "val"] = "train",
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        check_kinds(MAML, locals())
        self.first_order, self.query = first_order, query
        super().__init__(server={"lr": lr, "momentum": momentum, "decay": decay}, weighting=weighting, local=local)

    def train_locally(self, run: LocalRun) -> None:
        """Train, take the gradient, and send the initial model less the meta-gradient."""
        path: list[Taken] = []
        if self.first_order or not run.sends:
            run.train()
        else:
            groups = _groups(run)

            def around(step: Step, batch: Any, number: int) -> Any:
                options = [{name: float(group[name]) for name in OPTIONS} if group else None for group in groups]
                before, generator = [one.clone() for one in run.tensors()], torch.get_rng_state()
                output = step(batch, number)
                if output is not None:  # else the module has skipped the batch
                    moved = [one.grad is not None for one in run.trained]
                    options = [o if has_moved else None for o, has_moved in zip(options, moved, strict=True)]
                    path.append(Taken(before, batch, number, generator, options))
                return output

            run.train(around=around)
        if run.sends:
            query = self.query if len(run.examples(self.query)) else "train"
            meta = meta_gradient(run, path, run.gradient(query, run.trained))[: len(run.start)]
            run.send([weight.detach() - grad for weight, grad in zip(run.start, meta, strict=True)])


OPTIONS = ("lr", "momentum", "weight_decay")


def _groups(run: LocalRun) -> list[dict[str, Any] | None]:
    """Return the parameter group of each parameter, None of one in none."""
    optimizer, local = run.local.trainer.optimizers[0], run.local
    plain = type(optimizer) is SGD and not any(g["dampening"] or g["nesterov"] for g in optimizer.param_groups)
    if not local.bare or not plain:
        what = ", ".join(local.lightning_features) or type(optimizer).__name__
        raise MisconfigurationException(
            f"second-order MAML follows plain steps of SGD back, without dampening and Nesterov's momentum, got "
            f"{what}: do without it, or take MAML(first_order=True)."
        )
    places = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}
    return [places.get(id(one)) for one in run.trained]


def meta_gradient(run: LocalRun, path: Sequence[Taken], gradient: list[Tensor]) -> list[Tensor]:
    """Return the gradient with respect to the parameters before the steps of a path; the module stays as it is."""
    later, of_buffer = torch.get_rng_state(), [torch.zeros_like(one) for one in gradient]
    with run.undone():
        for taken in reversed(path):
            torch._foreach_copy_(run.tensors(), taken.before)
            torch.set_rng_state(taken.generator)
            parts = list(zip(gradient, of_buffer, taken.options, strict=True))
            inner = [torch.zeros_like(w) if o is None else b - o["lr"] * w for w, b, o in parts]
            curved = _hessian_product(run, taken, inner)
            of_buffer = [b if o is None else o["momentum"] * i for i, (_, b, o) in zip(inner, parts, strict=True)]
            gradient = [
                w + h if o is None else w + h + o["weight_decay"] * i
                for h, i, (w, _, o) in zip(curved, inner, parts, strict=True)
            ]
    torch.set_rng_state(later)
    return gradient


def _hessian_product(run: LocalRun, taken: Taken, vector: Sequence[Tensor]) -> list[Tensor]:
    weights = run.trained
    zeros = [torch.zeros_like(one) for one in vector]
    found: Sequence[Tensor | None] = zeros
    try:
        for loss, _ in run.local.losses([(taken.batch, 1)], taken.number):
            grads = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
            product = sum((grad * one).sum() for grad, one in zip(grads, vector, strict=True) if grad is not None)
            if isinstance(product, Tensor) and product.requires_grad:  # else the loss is linear in the weights
                found = torch.autograd.grad(product, weights, allow_unused=True)
    except RuntimeError as error:
        raise MisconfigurationException(
            f"second-order MAML needs a module that can be differentiated twice, this one cannot: "
            f"{str(error).splitlines()[0]}. Take MAML(first_order=True)."
        ) from error
    return [zero if one is None else one for zero, one in zip(zeros, found, strict=True)]
