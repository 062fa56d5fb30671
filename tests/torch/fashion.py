# SPDX-License-Identifier: Apache-2.0
"""Small models and real pictures to train them on: a part of Fashion-MNIST."""

import gzip
import os
import struct

import torch
from torch import nn

from places import require

PLACE = os.environ.get("HEARTH_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")

require(None if os.path.isdir(PLACE) else f"{PLACE} is missing (package dataset-fashion-mnist)")


def _read(name, head):
    with gzip.open(os.path.join(PLACE, name)) as file:
        sizes = struct.unpack(f">{head}I", file.read(4 * head))[1:]
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(sizes)


def pictures(count=2048):
    """(N, 1, 28, 28) in 0..1, and their classes."""
    images, labels = _read("t10k-images-idx3-ubyte.gz", 4), _read("t10k-labels-idx1-ubyte.gz", 2)
    return images[:count].unsqueeze(1).float() / 255, labels[:count].long()


def convolution():
    """About 50,000 parameters, most of them in two matrices."""
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(32 * 36, 40), nn.ReLU(), nn.Linear(40, 10))


def wide():
    """Of 400,000 parameters, enough for sums to be made in parts."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


class Transformer(nn.Module):
    """Reads a picture as 28 rows."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(28, width)
        self.place = nn.Parameter(torch.zeros(28, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 10)

    def forward(self, pictures):
        rows = self.embed(pictures.squeeze(1)) + self.place
        return self.head(self.body(rows).mean(1))


MODELS = {"convolution": convolution, "wide": wide, "transformer": Transformer}
