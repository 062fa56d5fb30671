# SPDX-License-Identifier: Apache-2.0
"""Backend "hearth" under DistributedDataParallel, PyTorch's own hooks, ZeRO, Join, torchrun and DataLoader workers."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import rank_processes
import hearth.torch

rank_processes.need_extension()

TORCHRUN = Path("/usr/bin/torchrun")
SCRIPT = Path(__file__).with_name("train_with_backend.py")


def net():
    """Convolution, normalisation and a layer that is channels-last, alike on all ranks only after DDP's broadcast."""
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(4 * 6 * 6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 1, 8, 8, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def check_replicas(model):
    """Bit for bit, by the bytes of all ranks."""
    own = parameters_of(model)
    every = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    for rank, other in enumerate(every):
        assert torch.equal(own.view(torch.int32), other.view(torch.int32)), f"rank {rank} has another model"


def train(steps=6, hook=None, bucket_mb=25, make_optimizer=None, group=None):
    """Losses and the last parameters."""
    model = net().to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, process_group=group)
    if hook:
        ddp.register_comm_hook(*hook())
    make_optimizer = make_optimizer or (lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9))
    optimizer, losses = make_optimizer(ddp.parameters()), []
    for step in range(steps):
        inputs, labels = batch(step, dist.get_rank())
        loss = torch.nn.functional.cross_entropy(ddp(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        check_replicas(model)
    return losses, parameters_of(model)


# ---- what ranks do ----

def plain(bucket_mb):
    torch.manual_seed(dist.get_rank())
    losses, parameters = train(bucket_mb=bucket_mb)
    torch.manual_seed(dist.get_rank())
    gloo_losses, gloo_parameters = train(bucket_mb=bucket_mb, group=dist.new_group(backend="gloo"))
    assert torch.allclose(torch.tensor(losses), torch.tensor(gloo_losses), rtol=1e-4), (losses, gloo_losses)
    assert torch.allclose(parameters, gloo_parameters, rtol=1e-3, atol=1e-5)
    return losses


def with_hooks():
    hooks = {
        "allreduce": lambda: (None, default_hooks.allreduce_hook),
        "fp16": lambda: (None, default_hooks.fp16_compress_hook),
        "powersgd": lambda: (powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
                             powerSGD_hook.powerSGD_hook),
    }
    reference = None
    for name, hook in hooks.items():
        torch.manual_seed(dist.get_rank())
        losses, _ = train(hook=hook)
        reference = reference or losses
        difference = max(abs(one - other) for one, other in zip(losses, reference))
        assert difference < (0.05 if name != "powersgd" else 0.5), (name, losses, reference)


def ordered():
    """PowerSGD with many buckets: each rank's callbacks would start their collectives in an order of their own."""
    os.environ["HEARTH_TORCH_ORDERED"] = "1"
    dist.init_process_group("hearth")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64 + i, 65 + i) for i in range(12)])
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.03)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    for _ in range(10):
        optimizer.zero_grad()
        ddp(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()
        check_replicas(model)
    dist.barrier()


def hook_on_top():
    """The gradients go by the hook, over a node of their own, and everything else by the backend."""
    torch.manual_seed(dist.get_rank())
    model = net()
    ddp = DistributedDataParallel(model)
    state = hearth.torch.register(ddp, codec="topk:0.05")
    optimizer = torch.optim.SGD(ddp.parameters(), 0.05)
    for step in range(4):
        inputs, labels = batch(step, dist.get_rank())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
        optimizer.step()
        check_replicas(model)
    return state is not None


def zero():
    torch.manual_seed(dist.get_rank())
    _, expected = train(make_optimizer=lambda parameters: torch.optim.Adam(parameters, 1e-3))
    torch.manual_seed(dist.get_rank())
    _, parameters = train(make_optimizer=lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=1e-3))
    assert torch.allclose(parameters, expected, atol=1e-6)


def join():
    """Ranks with differently many batches."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    with Join([ddp]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            ddp(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    check_replicas(ddp)


def unused_parameters():
    """The bitmap of used parameters goes by all_reduce of integers."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(3, 3), "other": torch.nn.Linear(3, 3)})

    class Some(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, inputs):
            return self.parts["used" if dist.get_rank() == 0 else "other"](inputs)

    ddp = DistributedDataParallel(Some(), find_unused_parameters=True)
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(2, 3)).sum().backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in ddp.parameters()])
    every = [torch.zeros_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(every, gradient)
    assert all(torch.equal(gradient, other) for other in every) and gradient.abs().sum() > 0


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((4,), float(index))


def forked_workers():
    """Workers of a DataLoader are forks of a process with an open group: they end, and the group goes on."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
    for _ in range(2):
        for numbers in loader:
            dist.all_reduce(numbers)
    tensor, child = torch.ones(1), os.fork()
    if child == 0:
        code = 1
        try:
            dist.all_reduce(tensor)
        except hearth.Forked:
            code = 0
        finally:
            dist.distributed_c10d._get_default_group().shutdown()
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(tensor)
    assert tensor.item() == dist.get_world_size()


class Training(unittest.TestCase):
    def test_ddp_is_gloos_within_rounding_and_replicas_are_identical(self):
        for count in (2, 4):
            losses = rank_processes.run(count, plain, 25)
            self.assertEqual(len(losses[0]), 6)

    def test_many_small_buckets(self):
        rank_processes.run(2, plain, 0.001)

    def test_hooks_of_pytorch(self):
        rank_processes.run(2, with_hooks)

    def test_hearths_own_hook_on_the_backend(self):
        self.assertEqual(rank_processes.run(2, hook_on_top), [True, True])

    def test_power_sgd_with_many_buckets_needs_ordered_futures(self):
        rank_processes.run(2, ordered, backend=None)

    def test_zero_redundancy_optimizer(self):
        rank_processes.run(2, zero)

    def test_join_with_uneven_inputs(self):
        rank_processes.run(2, join)

    def test_unused_parameters(self):
        rank_processes.run(2, unused_parameters)

    def test_forked_workers_harm_nothing(self):
        rank_processes.run(2, forked_workers)


class Launchers(unittest.TestCase):
    def launch(self, *command):
        """Two ranks train, each says so, and nothing else is wrong."""
        paths = [str(Path(hearth.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*map(str, command)], env=environment, timeout=rank_processes.SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("trained"), 2, done.stdout)

    @unittest.skipUnless(TORCHRUN.exists(), f"{TORCHRUN} is missing")
    def test_torchrun(self):
        # torch 1.13 does not understand its own defaults of the last two under Python 3.11; here they mean "no rank".
        self.launch(TORCHRUN, "--nproc_per_node", 2, "--master_port", rank_processes.free_port(),
                    "--redirects", "9:3", "--tee", "9:3", SCRIPT)

    def test_hearth_run(self):
        program = Path(hearth._library.lib.path).resolve().with_name("hearth")
        if not program.exists():
            self.skipTest(f"{program} is missing")
        self.launch(program, "run", "-n", 2, "--", sys.executable, "-B", SCRIPT)
