"""Random Fourier features: Rahimi & Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2008.

The inner product of two examples' features approximates a kernel: Gaussian ``exp(-gamma |x - y|_2^2)`` or Laplace
``exp(-gamma |x - y|_1)``.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from lightning_fedhpo.arguments import check_kinds, number, whole

Kernel = Literal["gaussian", "laplace"]
Preprocessing = Literal["none", "minmax", "standardize", "normalize"]
BLOCK = 4096  # rows at a time, for little memory


class RandomFourier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Map examples to ``sqrt(2 / D) cos(W x + b)``, with W and b drawn for a kernel.

    Two maps of the same `random_state` and kernel draw the same directions, each scaled by its `gamma`: a coordinate
    means something similar in both, which is what sharing weights wants. W is drawn anew for each use rather than kept.

    Args:
        components: The number of features, D.
        kernel: Which kernel is approximated.
        gamma: The kernel's inverse bandwidth.
        preprocessing: What comes first: columns scaled to [0, 1] (``"minmax"``) or to mean 0 and variance 1
            (``"standardize"``), examples scaled to length 1 (``"normalize"``), or nothing.
        random_state: The seed of W and b.

    Example:
        >>> examples = np.array([[0.0, 0.0], [0.5, 0.0]])
        >>> features = RandomFourier(20_000, gamma=1.0, random_state=0).fit_transform(examples)
        >>> print(f"{features[0] @ features[1]:.2f}, the kernel is {np.exp(-0.25):.2f}")
        0.78, the kernel is 0.78
    """

    def __init__(
        self,
        components: int = 256,
        kernel: Kernel = "gaussian",
        gamma: float = 1.0,
        preprocessing: Preprocessing = "none",
        random_state: int = 0,
    ) -> None:
        self.components = components
        self.kernel = kernel
        self.gamma = gamma
        self.preprocessing = preprocessing
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RandomFourier:  # noqa: N803 - scikit-learn's name
        """Take the columns' scales from training examples, and draw the seed of W and b."""
        check_kinds(RandomFourier, {**self.get_params(), "random_state": 0})
        whole("components", self.components, high=10**6)
        number("gamma", self.gamma, above=0)
        examples = validate_data(self, X, dtype=[np.float64, np.float32])
        self._n_features_out = self.components
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.shift_, self.scale_ = _scales(examples, self.preprocessing)
        return self

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:  # noqa: N803
        """Return the features of examples, one row each, in their precision."""
        check_is_fitted(self)
        examples = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        draw = np.random.default_rng(self.seed_)
        shape = (self.n_features_in_, self.components)
        if self.kernel == "gaussian":
            weights = np.sqrt(2.0 * self.gamma) * draw.standard_normal(shape)
        else:
            weights = self.gamma * draw.standard_cauchy(shape)
        weights *= self.scale_[:, None]
        features: NDArray[np.floating[Any]] = examples @ weights.astype(examples.dtype)
        if self.preprocessing == "normalize":
            lengths = np.sqrt(np.einsum("ij,ij->i", examples, examples))
            features /= np.where(lengths > 0, lengths, 1.0)[:, None]
        features += (draw.uniform(0, 2 * np.pi, self.components) - self.shift_ @ weights).astype(examples.dtype)
        np.cos(features, out=features)
        features *= np.sqrt(2.0 / self.components)
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _scales(examples: NDArray[Any], preprocessing: Preprocessing) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what is taken off each column, and the factor that follows; constant columns keep the factor 1."""
    shift, width = np.zeros(examples.shape[1]), np.ones(examples.shape[1])
    if preprocessing == "minmax":
        shift = examples.min(axis=0).astype(np.float64)
        width = examples.max(axis=0) - shift
    elif preprocessing == "standardize":
        shift = examples.mean(axis=0, dtype=np.float64)
        starts = range(0, len(examples), BLOCK)
        off = (examples[start : start + BLOCK] - shift.astype(examples.dtype) for start in starts)
        width = np.sqrt(sum(np.einsum("ij,ij->j", part, part, dtype=np.float64) for part in off) / len(examples))
    return shift, 1.0 / np.where(width > 0, width, 1.0)
