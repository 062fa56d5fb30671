#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process of the measurement: trains a transformer under DDP in as many ways as it is told, in turns.

Started by run_torch.py, once for each rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. What it has to say
it prints as lines of JSON. All ways live side by side, each with its own copy of the model: so a way is never measured
minutes after the one that it is compared with.
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import sys
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LIMIT = datetime.timedelta(seconds=120)
TURN_S, STEPS_MAX = 0.1, 6  # a turn is one step; of what takes less than this, several
ROUNDS_MIN, ROUNDS_MAX = 3, 25
WARM_STEPS = 4  # buckets are rebuilt after the first; PyTorch's PowerSGD begins in the third
MIB = 1 << 20


def tell(**facts):
    """A line for run_torch.py, in one piece: ranks share the pipe."""
    os.write(1, (json.dumps(facts) + "\n").encode())


# ---- The model -----------------------------------------------------------------------------------------------------

class Transformer(nn.Module):
    """Guesses the next byte: layers of width `width`, with matrices as in any transformer."""

    def __init__(self, layers, width, length):
        super().__init__()
        self.frames = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, 0.0, batch_first=True,
                                           norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.guess = nn.Linear(width, 256)

    def forward(self, text):
        return self.guess(self.body(self.frames(text) + self.places))


class Training:
    """A model and its optimiser: what a step computes, whoever moves the gradients."""

    def __init__(self, options, way):
        torch.manual_seed(1)
        self.model = Transformer(options.layers, options.width, options.length)
        self.wrapped = self.model if way == "compute" else wrap(self.model, way, options.bucket_mb)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.texts = torch.Generator().manual_seed(dist.get_rank())
        self.shape = (options.batch, options.length + 1)

    def step(self):
        text = torch.randint(256, self.shape, generator=self.texts)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.wrapped(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def bits(self):
        """A number that replicas share if they are alike."""
        total = 0
        for parameter in self.model.parameters():
            total = zlib.crc32(parameter.detach().numpy(), total)
        return total


# ---- The ways ------------------------------------------------------------------------------------------------------
# compute · gloo.CONGESTION[.HOOK] · hook[@TRANSPORT].CODEC · backend[@TRANSPORT], and sums of one bucket without a
# model: sum.gloo.CONGESTION · sum.backend[@TRANSPORT] · sum.binding[@TRANSPORT]

@contextlib.contextmanager
def congestion_control(name):
    """Sockets that are made meanwhile begin with it. It belongs to the host, and is put back."""
    before = CONGESTION.read_text().strip()
    try:
        if name != before:
            CONGESTION.write_text(name)
        dist.barrier()
        yield
    finally:
        dist.barrier()
        if name != before:
            CONGESTION.write_text(before)


@contextlib.contextmanager
def transport(name):
    """Nodes that are opened meanwhile use it; empty: the library's own choice."""
    os.environ["HEARTH_TRANSPORT"] = name or "auto"
    try:
        yield
    finally:
        del os.environ["HEARTH_TRANSPORT"]


@functools.lru_cache(maxsize=None)
def gloo_group(congestion):
    with congestion_control(congestion):
        return dist.new_group(backend="gloo", timeout=LIMIT)


@functools.lru_cache(maxsize=None)
def hearth_backend(name):
    import hearth.torch  # noqa: F401  (makes the backend known)
    with transport(name):
        return dist.new_group(backend="hearth", timeout=LIMIT)


@functools.lru_cache(maxsize=None)
def hearth_node(name):
    """A torch group for DDP, and the node that hooks on it use."""
    from hearth.torch import _meeting
    group = dist.new_group(backend="gloo", timeout=LIMIT)
    with transport(name):
        return group, _meeting.of(group)


def pytorch_hook(name, group):
    """(state, hook) of one of PyTorch's own, by name: fp16 or powersgd:RANK."""
    kind, _, rank = name.partition(":")
    if kind == "fp16":
        return group, default_hooks.fp16_compress_hook
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=int(rank), start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


def ddp(model, group, bucket_mb, one_bucket=False):
    """`one_bucket` is for PyTorch's PowerSGD: what it does in callbacks happens in another order on each rank if there
    are several buckets, and gloo then ends the process."""
    if one_bucket:
        dist._DEFAULT_FIRST_BUCKET_BYTES, before = 1 << 30, dist._DEFAULT_FIRST_BUCKET_BYTES
    try:
        return nn.parallel.DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True,
                                                   bucket_cap_mb=1024 if one_bucket else bucket_mb)
    finally:
        if one_bucket:
            dist._DEFAULT_FIRST_BUCKET_BYTES = before


def wrap(model, way, bucket_mb):
    """The model under DDP, so that it trains in this way."""
    kind, _, rest = way.partition(".")
    kind, _, carrier = kind.partition("@")
    if kind == "gloo":
        congestion, _, hook = rest.partition(".")
        group = gloo_group(congestion)
        wrapped = ddp(model, group, bucket_mb, one_bucket="powersgd" in hook)
        if hook:
            wrapped.register_comm_hook(*pytorch_hook(hook, group))
        return wrapped
    if kind == "backend":
        return ddp(model, hearth_backend(carrier), bucket_mb)
    import hearth.torch
    wrapped = ddp(model, hearth_node(carrier)[0], bucket_mb)
    hearth.torch.register(wrapped, codec=rest)
    return wrapped


def summing(way, bucket_mb):
    """A function that all-reduces one bucket."""
    bucket = torch.full((bucket_mb * MIB // 4,), float(dist.get_rank()))
    kind, _, rest = way.partition(".")[2].partition(".")
    kind, _, carrier = kind.partition("@")
    if kind == "binding":
        world = hearth_node(carrier)[1].world
        return lambda: world.all_reduce(bucket)
    group = gloo_group(rest) if kind == "gloo" else hearth_backend(carrier)
    return lambda: dist.all_reduce(bucket, group=group)


# ---- Measuring -----------------------------------------------------------------------------------------------------

def slowest(values):
    """The largest of each number over the ranks: a step is over when it is over for all."""
    largest = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.tolist()


def timed(step, count):
    """Seconds of each of `count` steps, and of the processor for all of them."""
    seconds, processor = [], 0
    for _ in range(count):
        dist.barrier()
        begin, used = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - begin)
        processor += time.process_time() - used
    *seconds, processor = slowest([*seconds, processor])
    return seconds, processor


def say(**facts):
    if dist.get_rank() == 0:
        tell(**facts)


class Contest:
    """All ways, in turns."""

    def __init__(self, options):
        self.options, self.way = options, "start"
        self.trainings, self.steps, self.counts, self.rounds = {}, {}, {}, 0

    def make(self):
        for self.way in self.options.ways:
            if self.way.startswith("sum."):
                self.steps[self.way] = summing(self.way, self.options.bucket_mb)
            else:
                self.trainings[self.way] = Training(self.options, self.way)
                self.steps[self.way] = self.trainings[self.way].step
            for _ in range(WARM_STEPS):
                self.steps[self.way]()
            dist.barrier()
            say(event="made", way=self.way)

    def describe(self):
        buckets, parameters = 0, []
        for way, training in self.trainings.items():
            parameters = list(training.model.parameters())
            if way.startswith("gloo."):
                found = training.wrapped._get_ddp_logging_data()
                buckets = len((found.get("rebuilt_bucket_sizes") or found["bucket_sizes"]).split(","))
                break
        say(event="ready", parameters=sum(p.numel() for p in parameters), tensors=len(parameters), buckets=buckets)

    def settle(self):
        """One step of each on the network as it is to be. How many make a turn follows, and how many rounds there are."""
        total = 0
        for self.way, step in self.steps.items():
            (seconds,), _ = timed(step, 1)
            self.counts[self.way] = max(1, min(STEPS_MAX, round(TURN_S / seconds)))
            total += self.counts[self.way] * seconds
            say(event="settled", way=self.way)
        self.rounds = self.options.rounds or max(ROUNDS_MIN, min(ROUNDS_MAX, round(self.options.seconds / total)))
        say(event="rounds", way="all", rounds=self.rounds)

    def run(self):
        ways = list(self.steps)
        for index in range(self.rounds):
            shift = index * len(ways) // self.rounds  # each round another begins
            for self.way in ways[shift:] + ways[:shift]:
                seconds, processor = timed(self.steps[self.way], self.counts[self.way])
                say(event="turn", round=index, way=self.way, seconds=seconds, processor=processor / len(seconds))

    def compare(self):
        """Do the replicas of each way hold the same bits?"""
        for self.way, training in self.trainings.items():
            if self.way != "compute":
                found = [None] * dist.get_world_size()
                dist.all_gather_object(found, training.bits())
                say(event="bits", way=self.way, same=len(set(found)) == 1)


def main():
    contest = Contest(options_of(sys.argv[1:]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=LIMIT)
    try:
        contest.make()
        contest.describe()
        sys.stdin.readline()  # meanwhile the network gets its rate
        dist.barrier()
        contest.settle()
        contest.run()
        contest.compare()
    except Exception as failure:
        tell(event="failed", way=contest.way, text=f"{type(failure).__name__}: {failure}")
        raise


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--rounds", type=int, default=0, help="0: as many as --seconds allow")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=2)
    parser.add_argument("--bucket-mb", type=int, default=25)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
