# SPDX-License-Identifier: Apache-2.0
"""A script of torch.distributed that knows nothing of Hearth: finds the others by the environment, sums, says it."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
total = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(total)
line = (f"rank {dist.get_rank()} of {dist.get_world_size()}, here {os.environ['LOCAL_RANK']}: {total.tolist()}, "
        f"{torch.get_num_threads()} threads\n")
os.write(1, line.encode())  # at once: under torchrun print writes text and newline apart, and ranks share the pipe
dist.destroy_process_group()
