"""Feature maps with shared weights: random Fourier features, bags of n-grams, and the searches among them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning_fedhpo.feature_maps.feature_map_weights import FeatureMapWeights

if TYPE_CHECKING:
    from lightning_fedhpo.feature_maps.bag_of_ngrams import BagOfNGrams
    from lightning_fedhpo.feature_maps.corpus import Corpus
    from lightning_fedhpo.feature_maps.map_spaces import bag_maps, fourier_maps
    from lightning_fedhpo.feature_maps.random_fourier import RandomFourier
    from lightning_fedhpo.feature_maps.shared_feature_maps import SharedFeatureMaps

_FILES = {
    "BagOfNGrams": "bag_of_ngrams",
    "Corpus": "corpus",
    "RandomFourier": "random_fourier",
    "SharedFeatureMaps": "shared_feature_maps",
    "bag_maps": "map_spaces",
    "fourier_maps": "map_spaces",
}
"""What needs scikit-learn, by the file that has it."""

__all__ = [
    "BagOfNGrams",
    "Corpus",
    "FeatureMapWeights",
    "RandomFourier",
    "SharedFeatureMaps",
    "bag_maps",
    "fourier_maps",
]


def __getattr__(name: str) -> Any:
    """Import what needs scikit-learn when it is asked for."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_FILES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "scipy"):
            raise
        raise ModuleNotFoundError(
            f'{name} needs scikit-learn: pip install "lightning-fedhpo[features]".', name=error.name
        ) from error
    return getattr(module, name)
