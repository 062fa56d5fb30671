# SPDX-License-Identifier: Apache-2.0
"""A communication hook for DistributedDataParallel, and the state that it keeps.

DDP calls the hook with each bucket of gradients while backward is still computing others. The hook starts operations
and returns a future; a thread of the state waits for them, so the autograd thread never does.
"""

import ctypes
import hashlib
import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

import hearth

from .._errors import Closed, Poisoned
from .._futures import milliseconds
from . import _layout, _policy
from ._completion import Batch
from ._session import Session

VERSION = 1  # of state_dict
ON_POISON = ("nan", "raise")


@dataclass(frozen=True)
class HookStats:
    """What a State has sent from this member.

    Attributes:
        steps: synchronised backward passes
        plain_bytes: what they would have sent uncompressed
        sent_bytes: what they sent
        ratio: plain / sent; 0 while nothing was sent
        tensors: hearth.Stats of each compressed parameter, by name
    """

    steps: int
    plain_bytes: int
    sent_bytes: int
    ratio: float
    tensors: Dict[str, Any]


class State:
    """How gradients travel, and what compression keeps of each parameter between steps.

        state = hearth.torch.State("topk:0.01", model=model, warmup_steps=100)
        ddp.register_comm_hook(state, hearth.torch.hook)

    The same options on all members (but weight, group and scaler): the first hook call compares them. It also opens the
    group, so a State can be made before init_process_group. States are independent of each other.

    Args:
        codec: "none", "fp16", "bf16", "int8", "onebit", "topk:RATIO", "randomk:RATIO", "powersgd:RANK", "auto:..."
        model: names the parameters, for patterns and texts; without it they are param.0, param.1, ... in the order in
            which DDP first shows them
        group: a hearth.Group or a torch process group whose members train together; None: all processes
        min_count, vectors: parameters with fewer elements, or (unless vectors) fewer than two dimensions, go plain
        include, exclude: patterns with * and ?, a list or separated by commas: only these, all but these
        rules: {pattern: codec}; the last that matches a name counts, before all of the above
        warmup_steps: so many steps go plain
        ramp_steps: in so many more, topk and randomk come down from a ratio of 0.25 to their own
        weight: of this member in the average, for example its share of the batch; may be changed between steps
        scaler: a GradScaler. What compression kept is rescaled when the loss scale changes
        on_poison: NaN or Inf in a gradient makes it "nan" on all members, so that a GradScaler skips the step
            everywhere, or "raise"s. What compression kept stays as it was
        timeout: seconds that one operation may take; None: the node's default
        rank_order: plain sums are made in the order of ranks, so that a resumed run has the same bits although DDP has
            other buckets in its first step. False allows rings and sums inside each host first

    Gradients that accumulate under no_sync() are sent, and what was kept is added, once: in the backward that
    synchronises.

    Attributes:
        error: what went wrong; backward() raised a RuntimeError with its text, and will again: begin anew from a
            checkpoint. Only after hearth.Poisoned, which all members get, the next step is a new one
        step: synchronised backward passes
    """

    def __init__(self, codec: str = "none", *, model: Optional[torch.nn.Module] = None, group=None,
                 min_count: int = 4096, vectors: bool = False, include=None, exclude=None,
                 rules: Optional[Dict[str, str]] = None, warmup_steps: int = 0, ramp_steps: int = 0,
                 weight: float = 1.0, scaler=None, on_poison: str = "nan", timeout: Optional[float] = None,
                 rank_order: bool = True):
        rules = tuple((rules or {}).items())
        for name in (codec, *(codec for _, codec in rules)):
            hearth.codec_check(name)
        if on_poison not in ON_POISON:
            raise ValueError(f"on_poison is {on_poison!r}; it takes 'nan' or 'raise'")
        milliseconds(timeout)  # complains
        self._policy = _policy.Policy(codec, min_count, bool(vectors), _policy.listed(include),
                                      _policy.listed(exclude), rules)
        self._schedule = {"warmup_steps": warmup_steps, "ramp_steps": ramp_steps}
        self._behaviour = {"on_poison": on_poison, "rank_order": bool(rank_order)}
        self.timeout = timeout
        self._reset()
        self.group, self.scaler, self.weight = group, scaler, weight
        if model is not None:
            self.bind(model)

    def _reset(self):
        """All that belongs to one process only."""
        self.group = self.scaler = None
        self.weight = 1.0
        self.error: Optional[BaseException] = None
        self.step = 0
        self._session: Optional[Session] = None
        self._names = {}  # id of a parameter -> (the parameter, so that the id stays its own; its name)
        self._shapes = {}  # by name, in the order of first sight
        self._known = None  # names that were loaded, with their shapes
        self._bound = False
        self._layouts = {}  # by bucket index
        self._plain_bytes = 0
        self._scale = None
        self._saved = None  # to be loaded when the session opens
        self._strict = True

    # ---- names ----

    def bind(self, model: torch.nn.Module) -> None:
        """Takes the parameters' names from this model (or the one inside DDP). Before the first step."""
        if self._shapes:
            raise RuntimeError("hearth.torch: bind comes too late: parameters have names already")
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        for name, parameter in model.named_parameters():
            self._names[id(parameter)] = (parameter, name)
        self._bound = True

    def _name(self, parameter):
        known = self._names.get(id(parameter))
        if known is None and self._bound:
            raise ValueError(f"hearth.torch: a parameter of shape {tuple(parameter.shape)} is not one of the model "
                             "that was given to State")
        if known is None:
            known = self._names[id(parameter)] = (parameter, f"param.{len(self._names)}")
        name = known[1]
        if name not in self._shapes:
            self._check_known(name, tuple(parameter.shape))
            self._shapes[name] = tuple(parameter.shape)
        return name

    def _check_known(self, name, shape):
        if self._known is None or self._known.get(name) == shape:
            return
        there = f"has the shape {self._known[name]} there" if name in self._known else "is not there"
        hint = "" if self._bound == any(not n.startswith("param.") for n in self._known) else \
            ": that one was made with another `model`; give the same, or bind it"
        raise ValueError(f"hearth.torch: the state that was loaded is of another model: {name}, of shape {shape}, "
                         f"{there}{hint}")

    # ---- opening ----

    def _options(self):
        names = [name for _, name in self._names.values()] if self._bound else None
        return {**self._policy._asdict(), **self._schedule, **self._behaviour, "scaler": self.scaler is not None,
                "names": names and hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]}

    def _open(self):
        policy = self._policy._asdict()
        rules = policy.pop("rules")
        self._session = Session(self.group, self._options(), {**policy, "ramp_steps": self._schedule["ramp_steps"]},
                                rules, self.timeout)
        if self._saved is not None:
            self._load(self._saved)

    def _begin_step(self):
        scale = None if self.scaler is None else float(self.scaler.get_scale())
        if self._scale and scale and scale != self._scale:
            self._session.compressor.scale(scale / self._scale)
        self._scale = scale

    # ---- one bucket ----

    def _layout(self, bucket, buffer):
        """Remembered for as long as the bucket holds the same parameters and the warm-up lasts."""
        parameters = bucket.parameters()
        warm = self.step < self._schedule["warmup_steps"]
        known = self._layouts.get(bucket.index())
        if known is not None and known[1] == warm and len(known[0]) == len(parameters) and \
                all(a is b for a, b in zip(known[0], parameters)):
            return known[2]
        if sum(parameter.numel() for parameter in parameters) != buffer.numel():
            raise RuntimeError(f"hearth.torch: bucket {bucket.index()} has {buffer.numel()} elements, but its "
                               "parameters have others: this version of torch lays them out in another way")
        names = {id(parameter): self._name(parameter) for parameter in parameters}

        def name_of_coded(parameter):
            name = names[id(parameter)]
            plain = warm or parameter.is_complex() or _policy.plain_reason(self._policy, name, parameter.shape)
            return None if plain else name

        layout = _layout.make(parameters, buffer.element_size(), name_of_coded)
        self._layouts[bucket.index()] = (parameters, warm, layout)
        return layout

    def _start(self, batch, layout, buffer):
        """Starts all operations of a bucket, on all members in the same order."""
        session, options = self._session, {"op": "avg", "weight": self.weight, "timeout": self.timeout}
        # A sum of two has no order.
        plain = {**options, "rank_order": self._behaviour["rank_order"] and session.group.size > 2}
        for start, count in layout.direct:
            part = buffer[start:start + count]
            part = torch.view_as_real(part).view(-1) if part.is_complex() else part
            session.completion.start(batch, partial(session.group.all_reduce_nb, part, **plain))
        if layout.gathered:
            flat = layout.gather(buffer)
            flat = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
            session.completion.start(batch, partial(session.group.all_reduce_nb, flat, **plain),
                                     partial(_scatter, layout, buffer))
        for name, (start, count), shape in layout.coded:
            part = buffer[start:start + count]
            operation = partial(session.compressor.all_reduce_nb, name, part, shape=shape, **options)
            session.completion.start(batch, operation, partial(self._poison, part))

    def _poison(self, part, error):
        """NaN or Inf at any member becomes NaN at all, as it would in a plain sum."""
        if isinstance(error, Poisoned) and self._behaviour["on_poison"] == "nan":
            part.fill_(math.nan)
            return None
        return error

    def _finish(self, layout, buffer, given, error):
        """On the thread. The future that DDP has is the one behind `given`."""
        if error is not None and self.error is None:
            self.error = error
        size = self._session.group.size
        self._plain_bytes += 2 * (size - 1) * layout.plain_count * buffer.element_size() // size
        given.set_result(None)

    def _reduce(self, bucket):
        buffer = bucket.buffer()
        given = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else [])
        batch = Batch(None)
        # An exception set on a future does not reach DDP, and one raised by the hook leaves DDP's reducer unusable;
        # one raised by a callback of the future makes backward raise it.
        result = given.then(lambda _: _deliver(batch.error or self.error, buffer))
        try:
            self._prepare(bucket, buffer)
            layout = self._layout(bucket, buffer)
            batch.finish = partial(self._finish, layout, buffer, given)
            self._begin(batch, layout, buffer)
            self.step += bucket.is_last()
        except Exception as error:
            self.error = self.error or error
            given.set_result(None)
        return result

    def _prepare(self, bucket, buffer):
        if isinstance(self.error, Poisoned) and bucket.index() == 0:
            self._session.completion.drain()  # DDP did not wait for the buckets behind the one that failed
            self.error = None
        if self.error is not None:
            raise self.error
        if buffer.is_sparse:
            raise TypeError("hearth.torch: sparse gradients are not supported: make the Embedding with sparse=False")
        if self._session is None:
            self._open()
        if bucket.index() == 0:
            self._begin_step()

    def _begin(self, batch, layout, buffer):
        """Reports a failed start when the started operations have ended: until then the buffer is in use."""
        try:
            self._start(batch, layout, buffer)
        except Exception as error:
            batch.failed(error)
        self._session.completion.end(batch)

    # ---- keeping ----

    def state_dict(self) -> Dict[str, Any]:
        """What a resumed run needs to go on bit for bit. Each rank saves and loads its own. Not during backward.

            torch.save({"model": ddp.state_dict(), "hearth": state.state_dict()}, f"checkpoint.{rank}")
        """
        if self._session is None and self._saved is not None:
            return dict(self._saved)
        session = self._session
        data = bytearray(session.compressor.save() if session else b"")
        return {
            "version": VERSION, "rank": session.group.rank if session else None,
            "size": session.group.size if session else None, "step": self.step, "scale": self._scale,
            "plain_bytes": self._plain_bytes, "names": {name: list(shape) for name, shape in self._shapes.items()},
            "compressor": torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8),
        }

    def load_state_dict(self, saved: Dict[str, Any], strict: bool = True) -> None:
        """Takes over what state_dict gave: before or after the first step, on all members.

        strict=False: a state of another rank or number of members is accepted, but what compression kept is left out.
        """
        if saved.get("version") != VERSION:
            raise ValueError(f"hearth.torch: the state is of version {saved.get('version')}, this reads {VERSION}")
        self._strict = strict
        if self._session is None:
            self._saved = dict(saved)
            self.step = saved["step"]
        else:
            self._load(saved)

    def _load(self, saved):
        group = self._session.group
        ours = (saved["rank"], saved["size"]) == (group.rank, group.size)
        if not ours and saved["rank"] is not None:
            text = f"hearth.torch: the state is of rank {saved['rank']} of {saved['size']}, this is rank " \
                   f"{group.rank} of {group.size}: each rank saves and loads its own"
            if self._strict:
                raise ValueError(text)
            warnings.warn(f"{text}. What compression kept is left out", stacklevel=2)
        if ours:
            data = saved["compressor"].contiguous()
            self._session.compressor.load(ctypes.string_at(data.data_ptr(), data.numel()))
        self.step, self._scale, self._plain_bytes = saved["step"], saved["scale"], saved["plain_bytes"]
        self._known = {name: tuple(shape) for name, shape in saved["names"].items()} or None
        for name, shape in self._shapes.items():
            self._check_known(name, shape)
        self._saved = None

    def __getstate__(self):
        return {"policy": self._policy, "schedule": self._schedule, "behaviour": self._behaviour,
                "timeout": self.timeout, "weight": self.weight, "saved": self.state_dict()}

    def __setstate__(self, kept):
        self._reset()
        self._policy, self._schedule, self._behaviour = kept["policy"], kept["schedule"], kept["behaviour"]
        self.timeout, self.weight = kept["timeout"], kept["weight"]
        self.load_state_dict(kept["saved"])

    # ---- for people ----

    def stats(self) -> HookStats:
        """Bytes of all steps so far, as this member sent them. Not during backward."""
        tensors, plain, sent = {}, self._plain_bytes, self._plain_bytes
        if self._session is not None:
            whole = self._session.compressor.stats()
            plain, sent = plain + whole.plain_bytes, sent + whole.sent_bytes
            tensors = {name: self._session.compressor.stats(name) for name in self._compressed()}
        return HookStats(self.step, plain, sent, plain / sent if sent else 0.0, tensors)

    def _compressed(self):
        """Names of those that have been through the compressor."""
        if self.step <= self._schedule["warmup_steps"]:
            return []
        return [name for name, shape in self._shapes.items()
                if _policy.plain_reason(self._policy, name, shape) is None]

    def explain(self) -> str:
        """One line for each known parameter: how it travels, and why."""
        compressed, lines = set(self._compressed()), []
        for name, shape in self._shapes.items():
            why = _policy.plain_reason(self._policy, name, shape)
            if name in compressed:
                lines.append(self._session.compressor.explain(name))
            else:
                lines.append(f"{name}, {'x'.join(map(str, shape)) or 'scalar'}: plain ({why or 'warm-up'})")
        return "\n".join(lines)

    def close(self) -> None:
        """Gives the group back. Operations in flight are cancelled, for all members. Later hook calls fail."""
        if self.error is None:
            self.error = Closed("hearth.torch: the State is closed")
        if self._session is not None:
            self._session.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _scatter(layout, buffer, error):
    if error is None:
        layout.scatter(buffer)
    return error


def _deliver(error, buffer):
    if error is not None:
        raise error
    return buffer


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients over all members, with the options of the State. For DDP's register_comm_hook.

        ddp.register_comm_hook(hearth.torch.State("int8"), hearth.torch.hook)
    """
    return state._reduce(bucket)


def register(ddp: torch.nn.parallel.DistributedDataParallel, codec: str = "none", **options) -> State:
    """Makes a State with the model's names, over the members of its process group, and registers the hook.

        state = hearth.torch.register(ddp, codec="topk:0.01", warmup_steps=100)
    """
    group = None if ddp.process_group is dist.distributed_c10d._get_default_group() else ddp.process_group
    state = State(codec, model=ddp, **{"group": group, **options})
    ddp.register_comm_hook(state, hook)
    return state
