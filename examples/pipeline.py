#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one network in two stages, each in its own process: activations go forward, gradients come back.

    hearth run -n 2 -- python3 examples/pipeline.py --codec bf16
    python3 examples/pipeline.py                                    # both stages in one process

A batch is passed on in parts, so that both stages compute at the same time. The same code runs in one process, where
what is passed on is already there.
"""

import argparse
import gzip
from pathlib import Path

import torch
from torch import nn

import hearth


def load(folder):
    """Images as (count, 784) of bytes, and their labels."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as images, \
         gzip.open(folder / "train-labels-idx1-ubyte.gz") as labels:
        return (torch.frombuffer(bytearray(images.read()), dtype=torch.uint8)[16:].reshape(-1, 784),
                torch.frombuffer(bytearray(labels.read()), dtype=torch.uint8)[8:].long())


def train(group, options):
    """The mean loss of the last 50 steps, at the last stage."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    stages = [nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()),
              nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))]
    first, last = group.rank == 0, group.rank == group.size - 1
    mine = [parameter for stage, here in zip(stages, (first, last)) if here for parameter in stage.parameters()]
    optimizer = torch.optim.SGD(mine, lr=0.1)
    images, labels = load(options.data)
    order, losses = torch.randperm(len(images)), []
    for step in range(options.steps):
        parts = order[torch.arange(step * options.batch, (step + 1) * options.batch) % len(order)].chunk(options.parts)
        optimizer.zero_grad()
        hidden, seen, back, sends = [None] * len(parts), [], [], []
        for tag, part in enumerate(parts if first else ()):
            hidden[tag] = stages[0](images[part] / 255)
            if not last:
                sends.append(group.send_nb(hidden[tag].detach(), 1, tag, codec=options.codec))
        for tag, part in enumerate(parts if last else ()):
            seen.append(torch.empty(len(part), 64) if hidden[tag] is None else hidden[tag].detach().clone())
            if not first:
                group.recv(seen[tag], 0, tag)
            loss = nn.functional.cross_entropy(stages[1](seen[tag].requires_grad_()), labels[part]) / len(parts)
            loss.backward()
            losses.append(loss.item())
            if not first:
                sends.append(group.send_nb(seen[tag].grad, 0, tag, codec=options.codec))
        for tag, part in enumerate(parts if first else ()):
            back = seen[tag].grad if last else torch.empty_like(hidden[tag])
            if not last:
                group.recv(back, 1, tag)
            hidden[tag].backward(back)
        hearth.wait_all(sends)
        optimizer.step()
    return sum(losses[-50 * options.parts:]) / 50


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="none", help="none, bf16, fp16 or int8")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--parts", type=int, default=4, help="of a batch")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    with hearth.open() as node:
        loss = train(node.world, parser.parse_args())
        if node.rank == node.size - 1:
            print(f"loss {loss:.7f}")
