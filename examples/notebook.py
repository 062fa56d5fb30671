#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training in one process, as in a notebook: each member is a thread. No launcher, no network, no DDP.

The same function trains on several machines: give attach no group and call it under `hearth run` or torchrun.
"""

import torch
from torch import nn

import hearth
import hearth.torch

torch.set_num_threads(1)  # the members are the threads


def train(group, codec, steps=100):
    """Learns which of eight directions a noisy point lies in; returns loss and weights."""
    torch.manual_seed(group.rank)  # weights differ until attach sends those of rank 0
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    batches = torch.Generator().manual_seed(group.rank)
    with hearth.torch.attach(model, group, codec=codec, min_count=1024) as attached:
        for _ in range(steps):
            direction = torch.randint(8, (32,), generator=batches)
            points = nn.functional.one_hot(direction, 16) + 0.3 * torch.randn(32, 16, generator=batches)
            loss = nn.functional.cross_entropy(model(points), direction)
            optimizer.zero_grad()
            loss.backward()
            attached.wait()  # gradients are averaged
            optimizer.step()
    return loss.item(), nn.utils.parameters_to_vector(model.parameters()).detach()


if __name__ == "__main__":
    for codec in ("none", "int8", "topk:0.05"):
        results = hearth.local(train, 4, codec)
        assert all(torch.equal(weights, results[0][1]) for _, weights in results)
        print(f"{codec}: loss {results[0][0]:.4f} after 100 steps of 4 threads", flush=True)
    print("all replicas hold the same bits")
