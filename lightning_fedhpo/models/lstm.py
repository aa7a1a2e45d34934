"""The character LSTM of the papers' Shakespeare experiments.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017: an embedding
of 8, two layers of 256, and the next character by softmax. Dropout, which the FedEx papers tune, is between the layers
and before the output.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from lightning_fedhpo.arguments import check_kinds, number
from lightning_fedhpo.models.classifier import Classifier, check_sizes


class Characters(nn.Module):
    """Embed characters, read them in order, and score the one that follows."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float, every: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden, vocabulary)
        self._every = every

    def forward(self, text: Tensor) -> Tensor:
        """Return logits of shape (texts, vocabulary), or (texts, vocabulary, length) after every character."""
        if text.ndim != 2 or text.is_floating_point():
            raise ValueError(
                "LSTM takes texts, as batches of whole numbers of shape (examples, length), got one of shape "
                f"{tuple(text.shape)} and type {text.dtype}: take data=shakespeare or texts of your own."
            )
        states, _ = self.lstm(self.embedding(text))
        if not self._every:
            states = states[:, -1]
        logits: Tensor = self.output(self.dropout(states))
        return logits.transpose(1, 2) if self._every else logits


class LSTM(Classifier):
    """Predict the next character of a text.

    Args:
        every: Whether every character of the text has its next one as its label, of shape (texts, length), or only the
            last, of shape (texts,).

    Example:
        >>> import torch
        >>> LSTM(vocabulary=90)(torch.zeros(4, 80, dtype=torch.long)).shape
        torch.Size([4, 90])
    """

    def __init__(
        self,
        vocabulary: int = 80,
        *,
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
        every: bool = False,
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_kinds(LSTM, locals())
        check_sizes(vocabulary=vocabulary, embedding=embedding, hidden=hidden, layers=layers)
        number("dropout", dropout, 0, 1)
        # torch's LSTM takes no number of numpy's for a size.
        net = Characters(vocabulary, int(embedding), int(hidden), int(layers), dropout, every)
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
