# SPDX-License-Identifier: Apache-2.0
"""Checks the installation: `python3 -m hearth.selftest` tries each part and prints ok, failed or skipped, and why.

The exit status is 0 if nothing failed. Nothing leaves this machine.
"""

import ctypes
import importlib.util
import platform
import struct
import sys
import time
from array import array

SECONDS = 60.0  # for each part; a part that hangs has failed
COUNT = 100_000

# One of each type, and what three times that is, byte for byte on this machine.
ONES = {
    "f32": ("=f", 1.0, 3.0), "f64": ("=d", 1.0, 3.0), "f16": ("=e", 1.0, 3.0), "bf16": ("=H", 0x3F80, 0x4040),
    "i8": ("=b", -1, -3), "i32": ("=i", -1, -3), "i64": ("=q", -1, -3),
    "u8": ("=B", 1, 3), "u32": ("=I", 1, 3), "u64": ("=Q", 1, 3),
}


class Skip(Exception):
    """Why a part was not tried."""


def _must(truth, text):
    if not truth:
        raise AssertionError(text)


# ---- parts: each returns a few words about what was right ----------------------------------------------------------

def library():
    from ._library import __version__, lib
    return f"libhearth {lib.version_string().decode()} at {lib.path}, hearth {__version__} for Python"


def types():
    """The kernels, at an odd length, so that vectors and what is left over are both used."""
    import hearth

    def work(group):
        for dtype, (form, one, three) in ONES.items():
            block = ctypes.create_string_buffer(struct.pack(form, one) * 1001, 1001 * struct.calcsize(form))
            group.all_reduce(hearth.Memory(ctypes.addressof(block), 1001, dtype, keep=block), timeout=SECONDS)
            _must(block.raw == struct.pack(form, three) * 1001, f"a sum of {dtype} is wrong")

    hearth.local(work, 3)
    return f"three threads summed {', '.join(ONES)}"


def _total(transport):
    """In a process: all ranks' sum, and how they were joined."""
    import hearth
    with hearth.open(transport=transport, bind="127.0.0.1", open_timeout=SECONDS / 2, op_timeout=SECONDS / 2) as node:
        values = array("f", [node.rank + 1.0]) * COUNT
        node.world.all_reduce(values)
        return values == array("f", [3.0]) * COUNT, node.links()


def _processes(transport):
    import hearth
    for rank, (right, links) in enumerate(hearth.launch(_total, 2, transport, timeout=SECONDS)):
        _must(right, f"rank {rank} has a wrong sum")
        _must(transport in links, f"rank {rank} is joined otherwise:\n{links}")
    return f"two processes summed {COUNT:,} f32 over {transport}"


def shared_memory():
    return _processes("shm")


def loopback():
    return _processes("tcp")


def _compressed(codec):
    import hearth
    with hearth.open(open_timeout=SECONDS / 2, op_timeout=SECONDS / 2) as node:
        values = array("f", [(i % 100 - 50) * (node.rank + 1.0) for i in range(COUNT)])
        residual = array("f", bytes(4 * COUNT))
        node.world.all_reduce_compressed(values, codec, residual)
        return node.world.same(values), values.tobytes()


def compression():
    import hearth
    codec = "int8"
    ranks = hearth.launch(_compressed, 2, codec, timeout=SECONDS)
    _must(all(same for same, _ in ranks) and ranks[0][1] == ranks[1][1], "replicas differ")
    values = array("f", ranks[0][1])
    worst = max(abs(value - 3.0 * (i % 100 - 50)) for i, value in enumerate(values))
    _must(worst < 3.0, f"an element is {worst} off")
    return f"two processes summed {COUNT:,} f32 by {codec}, bit-identical, at most {worst:.2f} of 150 off"


def numpy():
    if importlib.util.find_spec("numpy") is None:
        raise Skip("numpy is not installed; it is not needed")
    import numpy as np

    import hearth
    sums = hearth.local(lambda group: group.all_reduce(np.full((3, 5), group.rank, "f4")), 3)
    _must(all((one == 3).all() for one in sums), "a sum of arrays is wrong")
    return f"numpy {np.__version__}: arrays without a copy"


def _torch():
    if importlib.util.find_spec("torch") is None:
        raise Skip("torch is not installed; it is needed for hearth.torch only")
    import torch
    return torch


def torch_tensors():
    torch = _torch()
    import hearth
    sums = hearth.local(lambda group: group.all_reduce(torch.full((3, 5), float(group.rank), dtype=torch.bfloat16)), 3)
    _must(all(bool((one == 3).all()) for one in sums), "a sum of tensors is wrong")
    return f"torch {torch.__version__}: CPU tensors without a copy"


def torch_hook():
    _torch()
    if importlib.util.find_spec("hearth.torch") is None:
        raise Skip("this package has no hearth.torch")
    import hearth.torch
    _must(callable(hearth.torch.hook), "hearth.torch.hook is missing")
    return "hearth.torch: hook for DistributedDataParallel"


def torch_backend():
    _torch()
    if importlib.util.find_spec("hearth.torch") is None or importlib.util.find_spec("hearth.torch._backend") is None:
        raise Skip("this package has no backend")
    from .torch import _backend
    try:
        module = _backend.load()
    except ImportError as error:
        raise Skip(str(error)) from None
    return f'init_process_group("hearth") by {module.__file__}'


PARTS = (library, types, shared_memory, loopback, compression, numpy, torch_tensors, torch_hook, torch_backend)


# ---- the whole -----------------------------------------------------------------------------------------------------

def attempt(part) -> str:
    """Tries a part and prints its line: "ok", "failed" or "skipped"."""
    start = time.monotonic()
    try:
        status, words = "ok", part()
    except Skip as reason:
        status, words = "skipped", str(reason)
    except Exception as error:
        status, words = "failed", f"{type(error).__name__}: {error}"
    took = time.monotonic() - start
    print(f"{status:8} {part.__name__.replace('_', ' ')}: {words} ({took:.1f} s)", flush=True)
    return status


def main() -> int:
    """Tries every part; the exit status."""
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}", flush=True)
    statuses = [attempt(part) for part in PARTS]
    print(", ".join(f"{statuses.count(status)} {status}" for status in ("ok", "failed", "skipped")), flush=True)
    return 1 if "failed" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
