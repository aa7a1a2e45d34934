"""Small reference modules: the models of the papers. A new one is exported here."""

from lightning_fedhpo.models.cifar_cnn import CifarCNN
from lightning_fedhpo.models.classifier import Classifier
from lightning_fedhpo.models.cnn import CNN
from lightning_fedhpo.models.lenet import LeNet
from lightning_fedhpo.models.linear import Linear
from lightning_fedhpo.models.lstm import LSTM
from lightning_fedhpo.models.mlp import MLP
from lightning_fedhpo.models.resnet import ResNet

__all__ = ["CNN", "LSTM", "MLP", "CifarCNN", "Classifier", "LeNet", "Linear", "ResNet"]
