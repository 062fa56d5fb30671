# SPDX-License-Identifier: Apache-2.0
"""Backend "hearth" of torch.distributed: `import hearth.torch; dist.init_process_group("hearth")`.

There are two process groups. One is an extension in C++, hearth_backend, which is built for one version of torch. It is
loaded when the first process group is made, so that everything else here works without it. The other is in Python and
runs with every torch: it is taken where there is no extension, or none for this torch. Members may have either.

HEARTH_TORCH_PROCESS_GROUP=cpp or python: this one and no other.

HEARTH_TORCH_ORDERED=1: Work.get_future() waits for the work, so that callbacks of futures run in the order of the
program. Hooks that start collectives from there (PyTorch's PowerSGD, with more than one bucket) start them in another
order on every rank otherwise, on gloo too.
"""

import atexit
import functools
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
import weakref
from pathlib import Path

import torch
import torch.distributed as dist

from .. import _library
from . import _meeting
from ._process_group import PythonProcessGroup

NAME = "hearth"
MODULE = "hearth_backend"
KINDS = ("auto", "cpp", "python")
DEVICES = ["cpu", "cuda"]  # whose tensors it takes: for torch 2
logger = logging.getLogger("hearth.torch")

HOW = ("build it with `cmake --preset release -DHEARTH_TORCH=ON && ninja -C build` (needs python3-torch, python3-dev, "
       "libtorch-dev and pybind11-dev), or name the file in HEARTH_TORCH_BACKEND")


def places() -> list:
    """Where the extension may be, in order: named by the user, in the package, in the tree's build."""
    named = os.environ.get("HEARTH_TORCH_BACKEND")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parents[1]
    tree = package.parents[2]
    directories = [package / "lib"]
    if (tree / "include" / "hearth.h").exists():
        directories += [Path(_library.lib.path).resolve().parent, tree / "build"]
    return [directory / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}" for directory in directories]


def _check(module, path):
    """Another torch has other classes, and another Hearth other structures: both would crash, so they are refused."""
    if module.torch_version != torch.__version__:
        raise ImportError(f"{path} was built for torch {module.torch_version}, and this is torch {torch.__version__}: "
                          f"{HOW}")
    if module.hearth_version >> 8 != _library.lib.version() >> 8:
        raise ImportError(f"{path} was built for another version of libhearth than {_library.lib.path}: {HOW}")


def load():
    """The extension. ImportError explains how to get it."""
    if MODULE in sys.modules:
        return sys.modules[MODULE]
    tried = places()
    for path in tried:
        if not path.exists():
            continue
        loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
        spec = importlib.util.spec_from_file_location(MODULE, str(path), loader=loader)
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            raise ImportError(f"{path} does not fit torch {torch.__version__}: {error}; {HOW}") from None
        _check(module, path)
        sys.modules[MODULE] = module
        return module
    raise ImportError(f"the backend \"hearth\" of torch.distributed is an extension, which is not there "
                      f"({', '.join(map(str, tried))}): {HOW}")


def _shutdown(reference):
    group = reference()
    if group is not None:
        group.shutdown()


def extension():
    """The extension; None: the process group in Python is to be used."""
    kind = os.environ.get("HEARTH_TORCH_PROCESS_GROUP") or "auto"
    if kind not in KINDS:
        raise ValueError(f"HEARTH_TORCH_PROCESS_GROUP is {kind!r}; it takes {', '.join(KINDS)}")
    if kind == "python":
        return None
    try:
        return load()
    except ImportError as error:
        if kind == "cpp" or os.environ.get("HEARTH_TORCH_BACKEND"):  # the user wants it
            raise
        logger.info("the process group in Python is used: %s", error)
        return None


def create(store, rank: int, size: int, timeout):
    """What torch.distributed calls for each process group, on its members only: each is a Hearth node of its own."""
    module = extension()
    node = _meeting.meet(store, rank, size, timeout.total_seconds())
    ordered = os.environ.get("HEARTH_TORCH_ORDERED", "0") == "1"
    if module is None:
        group = PythonProcessGroup(node, timeout.total_seconds(), ordered)
    else:
        group = module.ProcessGroupHearth(node, node._handle.address, timeout.total_seconds(), ordered)
    atexit.register(_shutdown, weakref.ref(group))  # before hearth's own, which would close the node under it
    return group


def _with_monitored_barrier(plain):
    """torch.distributed.monitored_barrier refuses every backend but gloo by its name, before it asks the group."""

    @functools.wraps(plain)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if group == dist.GroupMember.NON_GROUP_MEMBER or dist.get_backend(group) != NAME:
            return plain(group, timeout, wait_all_ranks)
        used = dist.distributed_c10d._get_default_group() if group is None else group
        given = {} if timeout is None else {"timeout": timeout}
        return used.monitored_barrier(wait_all_ranks=wait_all_ranks, **given)

    return monitored_barrier


def register() -> None:
    """Makes init_process_group("hearth") known. The newest torch calls it by the package's entry point in the group
    torch.distributed.backends; other versions need `import hearth.torch`."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    takes_devices = "devices" in inspect.signature(dist.Backend.register_backend).parameters  # torch 1.13 does not
    dist.Backend.register_backend(NAME, create, **({"devices": DEVICES} if takes_devices else {}))
    barrier = _with_monitored_barrier(dist.distributed_c10d.monitored_barrier)
    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = barrier


register()
