# SPDX-License-Identifier: Apache-2.0
"""Where the members of a torch process group meet as a Hearth node: they find each other by the group's store."""

import datetime
import json
import os
import random
import secrets
import socket
import threading
import time
import weakref

import torch.distributed as dist

import hearth

COME_SECONDS = 300.0  # members may reach their first backward at different times
PORTS = (20000, 32000)  # below those that systems give to outgoing connections: one that is free stays free
TRIES = 64
PREFIX = "hearth"

_lock = threading.Lock()
_nodes = {}  # id of a process group -> (weak reference to it, its node); id of None -> (None, node of the environment)


# ---- an address ----

def free_port() -> int:
    """A port that nobody listens on now."""
    for _ in range(TRIES):
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue
    raise RuntimeError(f"hearth: no free port among {TRIES} tried from {PORTS[0]} to {PORTS[1]}")


def own_address() -> str:
    """This host, as others reach it: MASTER_ADDR if that is here, else the address that we reach it from."""
    master = os.environ.get("MASTER_ADDR")
    if master and os.environ.get("RANK", "0") == "0":
        return master
    try:
        family, kind, _, _, where = socket.getaddrinfo(master or socket.gethostname(), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:  # a datagram socket that is connected sends nothing
            probe.connect(where)
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def endpoint() -> str:
    """host:port, with brackets around an IPv6 address."""
    host = own_address()
    return f"[{host}]:{free_port()}" if ":" in host else f"{host}:{free_port()}"


def _host() -> str:
    """Equal for processes that reach each other's unix sockets: boot of the machine, network namespace, user."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino} {os.geteuid()}"
    except OSError:
        return f"{socket.gethostname()} {os.geteuid()}"


def _place(hosts) -> str:
    """Where to meet: a private socket on one host, where members need no secret, else an address."""
    return f"unix:@hearth-torch-{secrets.token_hex(16)}" if len(set(hosts)) == 1 else endpoint()


# ---- meeting ----

def _open(**config):
    """Waiting threads sleep at once: the cores are for backward, and a stream of packets would keep them spinning."""
    if "HEARTH_SPIN_US" not in os.environ:
        config.setdefault("spin_us", 0)
    return hearth.open(**config)


def _left(deadline):
    return datetime.timedelta(seconds=max(0.001, deadline - time.monotonic()))


def _missing(store, keys):
    """Ranks whose key is not there."""
    missing = []
    for rank, key in enumerate(keys):
        try:
            store.wait([key], datetime.timedelta(milliseconds=10))
        except RuntimeError:
            missing.append(rank)
    return missing


def _invite(store, key, size, deadline):
    """Rank 0: waits for all, then says where to meet, or who did not come."""
    here = [f"{key}/{rank}" for rank in range(size)]
    try:
        store.wait(here, _left(deadline))
        word = {"rendezvous": _place(store.get(name) for name in here), "job": f"torch-{secrets.token_hex(8)}"}
    except RuntimeError as error:
        missing = _missing(store, here)
        word = {"error": f"rank {', '.join(map(str, missing))} did not come" if missing else str(error)}
    store.set(f"{key}/where", json.dumps(word))


def meet(store, rank: int, size: int, timeout=None, **config) -> "hearth.Node":
    """Opens a node for each of the `size` members that share this store. Each meeting on a store is a new node.

    timeout: seconds until all must have come. config: as for hearth.open.
    """
    seconds = COME_SECONDS if timeout is None else timeout
    deadline = time.monotonic() + seconds
    number = store.add(f"{PREFIX}/{rank}", 1)  # each member counts its own meetings
    key = f"{PREFIX}/{number}"
    store.set(f"{key}/{rank}", _host())
    if rank == 0:
        _invite(store, key, size, deadline)
    else:
        deadline += 1  # rank 0 names who is missing
    try:
        store.wait([f"{key}/where"], _left(deadline))
        word = json.loads(store.get(f"{key}/where"))
    except RuntimeError as error:
        raise TimeoutError(f"hearth: rank {rank} of {size}: rank 0 did not say where to meet within {seconds:g} s: "
                           f"{error}") from None
    if "error" in word:
        raise TimeoutError(f"hearth: rank {rank} of {size}: {word['error']} to the meeting within {seconds:g} s")
    return _open(**{**config, **word, "rank": rank, "world_size": size})


# ---- nodes that are shared ----

def _store_of(group):
    """The store by which the members of a process group found each other: torch 1.13 and 2 keep it elsewhere."""
    c10d = dist.distributed_c10d
    known = c10d._pg_map if hasattr(c10d, "_pg_map") else c10d._world.pg_map
    return dist.PrefixStore("hearth.torch", known[group][1])


def _forget_gone():
    """Closes the nodes of process groups that are no more."""
    for key, (group, opened) in list(_nodes.items()):
        if group is not None and group() is None:
            del _nodes[key]
            opened.close()


def of(group=None) -> "hearth.Node":
    """The node of the members of a torch process group (None: the default one), opened by the first call."""
    if group is None and dist.is_initialized():
        group = dist.distributed_c10d._get_default_group()
    with _lock:
        _forget_gone()
        if id(group) in _nodes:
            return _nodes[id(group)][1]
        if group is None:
            _nodes[id(None)] = (None, hearth.open())
        else:
            opened = meet(_store_of(group), dist.get_rank(group), dist.get_world_size(group))
            _nodes[id(group)] = (weakref.ref(group), opened)
        return _nodes[id(group)][1]


def default() -> "hearth.Node":
    """The node of all processes: by torch.distributed's store if that is initialised, else by the environment."""
    return of(None)


def node() -> "hearth.Node":
    """This process's node, shared by all that uses hearth.torch. The first call opens it, on all processes.

        hearth.torch.node().world.all_reduce(loss, op="avg")
    """
    return default()
