# SPDX-License-Identifier: Apache-2.0
"""A plain DDP script on backend "hearth", as a launcher starts it: trains a few steps and prints one line."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hearth.torch  # noqa: F401  (makes the backend known)


def main(how):
    dist.init_process_group("hearth")
    ddp = DistributedDataParallel(torch.nn.Linear(10, 2))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        ddp(torch.randn(4, 10)).square().sum().backward()
        optimizer.step()
    print("trained", flush=True)
    if how == "leave_in_flight":
        dist.all_reduce(torch.ones(1 << 20), async_op=True)
    elif how == "destroy":
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "destroy")
