"""Clients and their data: data sets, the partitions that share them out, and which clients take part in a round."""

from lightning_fedhpo.data.domains import domain_net, office_home, pacs
from lightning_fedhpo.data.examples import Examples
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.femnist import femnist
from lightning_fedhpo.data.image_folders import image_folders
from lightning_fedhpo.data.imagenet import imagenet, tiny_imagenet
from lightning_fedhpo.data.imdb import imdb
from lightning_fedhpo.data.leaf import leaf
from lightning_fedhpo.data.partition import Assignment, Dirichlet, Iid, Natural, Partition, Quantity, Shards
from lightning_fedhpo.data.parts import Part
from lightning_fedhpo.data.sampling import draw_cohort
from lightning_fedhpo.data.shakespeare import shakespeare
from lightning_fedhpo.data.synthetic import synthetic_alpha_beta, synthetic_classification, synthetic_images
from lightning_fedhpo.data.table_files import table
from lightning_fedhpo.data.vision import cifar10, fashion_mnist, mnist

__all__ = [
    "Assignment",
    "Dirichlet",
    "Examples",
    "FederatedData",
    "Iid",
    "Natural",
    "Part",
    "Partition",
    "Quantity",
    "Shards",
    "cifar10",
    "domain_net",
    "fashion_mnist",
    "femnist",
    "image_folders",
    "imagenet",
    "imdb",
    "leaf",
    "mnist",
    "office_home",
    "pacs",
    "shakespeare",
    "synthetic_alpha_beta",
    "synthetic_classification",
    "synthetic_images",
    "table",
    "tiny_imagenet",
    "draw_cohort",
]
