#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolution net on Fashion-MNIST with PyTorch's DDP, with compressed gradients. Start it as you like:

    python3 -m torch.distributed.run -r 9:1 -t 9:1 --nproc_per_node 2 examples/train.py
    hearth run -n 4 -- python3 examples/train.py --codec int8
    python3 examples/train.py --local 2
"""

import argparse
import gzip
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import hearth
import hearth.torch


def read(path, head):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[head:]


def load(folder, part):
    """Images as (count, 1, 28, 28) of bytes, and their labels."""
    images = read(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    return images, read(folder / f"{part}-labels-idx1-ubyte.gz", 8).long()


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                         nn.ReLU(), nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def train(options):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(network())
    state = hearth.torch.register(model, codec=options.codec)  # the one line
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = load(options.data, "train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    for step in range(1, options.steps + 1):
        first = ((step - 1) * size + rank) * options.batch
        mine = order[torch.arange(first, first + options.batch) % len(order)]
        loss = nn.functional.cross_entropy(model(images[mine] / 255), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 50 == 0 or step == options.steps):
            print(f"step {step}/{options.steps}: loss {loss.item():.4f}", flush=True)
    images, labels = (part[rank::size] for part in load(options.data, "t10k"))  # each rank tests its share
    with torch.no_grad():
        right = (model.module(images / 255).argmax(1) == labels).float().mean()
    world = hearth.torch.node().world
    accuracy = world.all_reduce(right, op="avg", weight=len(labels)).item()
    if not world.same(nn.utils.parameters_to_vector(model.parameters()).detach()):
        sys.exit(f"rank {rank}: the replicas differ")
    if rank == 0:
        stats = state.stats()
        print(f"accuracy {accuracy:.2%}, {size} replicas of the same bits; sent {stats.sent_bytes / 1e6:.2f} MB "
              f"instead of {stats.plain_bytes / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="topk:0.01,values=int8")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="images of one process in a step")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--local", type=int, default=0, metavar="N", help="starts N processes itself")
    chosen = parser.parse_args()
    hearth.launch(train, chosen.local, chosen) if chosen.local else train(chosen)
