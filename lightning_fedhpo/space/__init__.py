"""Search spaces: which hyperparameters are tuned, and what they may be."""

from lightning_fedhpo.space.categorical import Choice
from lightning_fedhpo.space.dimensions import Float, Int
from lightning_fedhpo.space.search_space import SearchSpace, dimension

__all__ = ["Choice", "Float", "Int", "SearchSpace", "dimension"]
