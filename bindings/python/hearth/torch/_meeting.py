# SPDX-License-Identifier: Apache-2.0
"""Opens a Hearth node for a torch process group: the members find each other through the group's store."""

import datetime
import hashlib
import json
import os
import random
import re
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
VALUE_BYTES_MAX = 16384  # of a value in the store: a list of missing ranks is the longest
CALL_FORMS = {"host": re.compile(r"[\x20-\x7e]{1,300}"), "call": re.compile(r"[0-9a-f]{32}")}
PLACE_FORMS = {
    "rendezvous": re.compile(r"unix:@hearth-torch-[0-9a-f]{32}|"
                             r"(\[[0-9A-Fa-f:.]{2,45}(%[\w.-]{1,15})?\]|[\w.-]{1,253}):[0-9]{1,5}", re.ASCII),
    "job": re.compile(r"torch-[0-9a-f]{16}"),
}

_lock = threading.Lock()
_nodes = {}  # id of a process group -> (weak reference to it, its node); id of None -> (None, node of the environment)


# ---- an address ----

def free_port() -> int:
    """A port that is free now."""
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
    """Equal for processes that reach each other's private sockets: boot, network namespace, user, folder."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        where = os.stat(folder if os.path.isdir(folder) else "/tmp")
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino} {os.geteuid()} {where.st_dev}:{where.st_ino}"
    except OSError:
        return f"{socket.gethostname()} {os.geteuid()} {folder[:64]}"


def _place(hosts) -> str:
    """The rendezvous: a private socket on one host, where members need no secret, else an address."""
    return f"unix:@hearth-torch-{secrets.token_hex(16)}" if len(set(hosts)) == 1 else endpoint()


# ---- meeting ----

def _open(**config):
    """Waiting threads sleep at once: the cores are for backward, and a stream of packets would keep them spinning."""
    if "HEARTH_SPIN_US" not in os.environ:
        config.setdefault("spin_us", 0)
    return hearth.open(**config)


def _left(deadline):
    return datetime.timedelta(seconds=max(0.001, deadline - time.monotonic()))


# The store has no authentication: any process that reaches it can write to it. So it may name a rendezvous and a job,
# both in the form of rank 0, and nothing else. At the rendezvous members prove that they know the secret.

def _parse(text, what: str) -> dict:
    """A JSON object that came from the store."""
    if len(text) > VALUE_BYTES_MAX:
        raise _refused(f"{what} has {len(text)} bytes; at most {VALUE_BYTES_MAX} are allowed")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise _refused(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise _refused(f"{what} is not a JSON object")
    return value


def _unique(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate key")
    return value


def _refused(why: str) -> "hearth.ProtocolError":
    return hearth.ProtocolError(f"hearth: torch's store: {why}; another process may be writing to the store")


def _take(value: dict, forms: dict, what: str) -> dict:
    """Exactly the keys of `forms`, each with a string of its form. Any other key is refused by its name."""
    for key in value:
        if key not in forms:
            raise _refused(f"{what} sets {key[:40]!r}; it may set only {', '.join(forms)}")
    for key, form in forms.items():
        if key not in value:
            raise _refused(f"{what} does not set {key}")
        if not isinstance(value[key], str) or not form.fullmatch(value[key]):
            raise _refused(f"{what} sets {key} to {repr(value[key])[:60]}, which is not in the form of rank 0")
    return value


def _missing_ranks(value: dict, size: int) -> list:
    """The missing ranks that rank 0 reports."""
    ranks = value["missing"]
    if len(value) != 1 or not isinstance(ranks, list) or not ranks or any(type(r) is not int for r in ranks):
        raise _refused("the answer of rank 0 has a bad list of missing ranks")
    if min(ranks) < 1 or max(ranks) >= size or len(ranks) >= size:
        raise _refused(f"the answer of rank 0 names missing ranks that a group of {size} does not have")
    return ranks


def _arrived(store, ranks):
    """Those of these ranks whose call has arrived."""
    arrived = []
    for rank in ranks:
        try:
            store.wait([f"{PREFIX}/call/{rank}"], datetime.timedelta(milliseconds=10))
            arrived.append(rank)
        except RuntimeError:
            continue
    return arrived


def _collect(store, ranks) -> dict:
    """Takes the calls of these ranks out of the store, so that the next meeting finds only new ones."""
    calls = {}
    for rank in ranks:
        calls[rank] = _take(_parse(store.get(f"{PREFIX}/call/{rank}"), f"the call of rank {rank}"), CALL_FORMS,
                            f"the call of rank {rank}")
        store.delete_key(f"{PREFIX}/call/{rank}")
    return calls


def _invite(store, size, deadline):
    """Rank 0: waits for all, then sends each the rendezvous, or the missing ranks. Returns what it sent."""
    others = range(1, size)
    try:
        if others:
            store.wait([f"{PREFIX}/call/{rank}" for rank in others], _left(deadline))
        arrived = others
    except RuntimeError:
        arrived = _arrived(store, others)
    calls = _collect(store, arrived)
    missing = [rank for rank in others if rank not in calls]
    if missing:
        answer = {"missing": missing}
    else:
        answer = {"rendezvous": _place([_host(), *(call["host"] for call in calls.values())]),
                  "job": f"torch-{secrets.token_hex(8)}"}
    for call in calls.values():
        store.set(f"{PREFIX}/answer/{call['call']}", json.dumps(answer))
    return answer


def _call(store, rank, deadline):
    """Another rank: posts its call, and waits for the answer of rank 0 under a key that it has drawn itself."""
    call = secrets.token_hex(16)
    store.set(f"{PREFIX}/call/{rank}", json.dumps({"host": _host(), "call": call}))
    try:
        store.wait([f"{PREFIX}/answer/{call}"], _left(deadline))
    except RuntimeError:
        store.delete_key(f"{PREFIX}/call/{rank}")
        raise
    answer = _parse(store.get(f"{PREFIX}/answer/{call}"), "the answer of rank 0")
    store.delete_key(f"{PREFIX}/answer/{call}")
    return answer


def meet(store, rank: int, size: int, timeout=None, **config) -> "hearth.Node":
    """Opens a node for each of the `size` members that share this store. Each meeting on a store is a new node.

    timeout: seconds until all must have arrived. config: as for hearth.open; the store cannot change these settings.
    """
    seconds = COME_SECONDS if timeout is None else timeout
    deadline = time.monotonic() + seconds
    try:
        # Rank 0 names the missing ranks when the time is over: others wait a moment longer.
        answer = _invite(store, size, deadline) if rank == 0 else _call(store, rank, deadline + 1)
    except RuntimeError as error:
        if isinstance(error, hearth.Error):
            raise
        raise TimeoutError(f"hearth: rank {rank} of {size}: rank 0 did not say where to meet within {seconds:g} s: "
                           f"{error}") from None
    if "missing" in answer:
        names = ", ".join(map(str, _missing_ranks(answer, size)))
        raise TimeoutError(f"hearth: rank {rank} of {size}: rank {names} did not come to the meeting "
                           f"within {seconds:g} s")
    place = _take(answer, PLACE_FORMS, "the answer of rank 0")
    return _open(**{**config, **place, "rank": rank, "world_size": size})


# ---- nodes that are shared ----

def _store_of(group):
    """The store by which the members of a process group found each other: torch 1.13 and 2 keep it elsewhere.

    Several groups share it: the group's name and the ranks of its members keep them apart.
    """
    c10d = dist.distributed_c10d
    if hasattr(c10d, "_pg_map"):
        stores, names, ranks = c10d._pg_map, c10d._pg_names, c10d._pg_group_ranks
    else:
        stores, names, ranks = c10d._world.pg_map, c10d._world.pg_names, c10d._world.pg_group_ranks
    identity = hashlib.sha256(repr((names[group], sorted(ranks[group]))).encode()).hexdigest()
    return dist.PrefixStore(f"hearth.torch/{identity[:32]}", stores[group][1])


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
