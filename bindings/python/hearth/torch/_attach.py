# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of an ordinary module, without DDP: in processes, or in the threads of hearth.local."""

import contextlib
import ctypes
import math
from typing import Any, Dict, Optional

import torch

import hearth

from ._hook import ON_POISON, VERSION
from ._session import parent_group


def _accumulator(parameter):
    """The node of the graph that adds to parameter.grad: what is hooked to it runs when the gradient is complete."""
    return parameter.expand_as(parameter).grad_fn.next_functions[0][0]


def _flat(tensor):
    """All elements in place; None: they are not adjacent."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if torch._debug_has_internal_overlap(tensor) == 0:
        return tensor.as_strided((tensor.numel(),), (1,))  # dense in another order, like channels_last
    return None


class Attached:
    """What attach returns. Call wait() between backward() and optimizer.step()."""

    def __init__(self, model, group, compressor: Dict[str, Any], op: str, weight: float, on_poison: str):
        if on_poison not in ON_POISON:
            raise ValueError(f"on_poison is {on_poison!r}; it takes 'nan' or 'raise'")
        self._on_poison = on_poison
        self._parts, self._hooks = [], []
        self._syncing = True
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._parameters = [p for _, p in reversed(named)]  # as backward will make them ready
        self._ready = [False] * len(named)
        try:
            self.group = self._opened(parent_group(group).split(0))
            self._broadcast(model)
            self.compressor = self._opened(hearth.Compressor(self.group, **compressor))
            self._sync = self._opened(hearth.Sync(self.compressor, op=op))
            self.weight = weight
            for index, (name, parameter) in enumerate(reversed(named)):
                self._sync.add(name, shape=tuple(parameter.shape), dtype=parameter.dtype)
                accumulator = _accumulator(parameter)
                handle = accumulator.register_hook(lambda *_, index=index: self._made(index))
                self._hooks.append((accumulator, handle))  # without a reference it would be created again
        except BaseException:
            self.close()
            raise

    def _opened(self, part):
        self._parts.append(part)
        return part

    def _broadcast(self, model):
        """All members begin with the model of rank 0."""
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                flat = _flat(tensor.detach())
                whole = tensor.detach().contiguous().view(-1) if flat is None else flat
                if whole.numel() > 0:
                    self.group.broadcast(whole, root=0)
                if flat is None:
                    tensor.copy_(whole.view(tensor.shape))

    @property
    def weight(self) -> float:
        """Of this member in the average, for example its share of the batch; set it between steps."""
        return self._weight

    @weight.setter
    def weight(self, weight: float):
        self._sync.set_weight(weight)
        self._weight = weight

    # ---- a step ----

    def _made(self, index):
        """A gradient is complete. Its memory may differ from the last step."""
        if not self._syncing:
            return
        parameter = self._parameters[index]
        if self._ready[index]:
            raise RuntimeError("hearth.torch: backward ran again before wait(): accumulate under no_sync()")
        if _flat(parameter.grad) is None:
            parameter.grad = parameter.grad.contiguous()
        self._ready[index] = True
        self._sync.set_data(index, _flat(parameter.grad))
        self._sync.ready(index)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Returns when all gradients are averaged. A parameter that took no part in backward counts as zero here.

        After an exception gradients hold anything, and the next backward begins a new step.
        """
        for index, parameter in enumerate(self._parameters):
            if not self._ready[index]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._made(index)
        self._ready = [False] * len(self._ready)
        try:
            self._sync.wait(timeout)
        except hearth.Error as error:
            self._sync.drop()
            if not isinstance(error, hearth.Poisoned) or self._on_poison == "raise":
                raise
            for parameter in self._parameters:
                parameter.grad.fill_(math.nan)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of backward() in here only accumulate; those of the next one outside are sent with them.

            with attached.no_sync():
                loss(model(first)).backward()
            loss(model(second)).backward()
            attached.wait()
        """
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    # ---- keeping ----

    def state_dict(self) -> Dict[str, Any]:
        """What a resumed run needs to go on bit for bit. Each rank saves and loads its own."""
        data = bytearray(self.compressor.save())
        return {"version": VERSION, "rank": self.group.rank, "size": self.group.size,
                "compressor": torch.frombuffer(data, dtype=torch.uint8)}

    def load_state_dict(self, saved: Dict[str, Any]) -> None:
        """Takes over what state_dict gave, on all members, between steps."""
        if (saved["rank"], saved["size"]) != (self.group.rank, self.group.size):
            raise ValueError(f"hearth.torch: the state is of rank {saved['rank']} of {saved['size']}, this is rank "
                             f"{self.group.rank} of {self.group.size}: each rank saves and loads its own")
        data = saved["compressor"].contiguous()
        self.compressor.load(ctypes.string_at(data.data_ptr(), data.numel()))

    def close(self) -> None:
        """The module is an ordinary one again."""
        for _, handle in self._hooks:
            handle.remove()
        self._hooks = []
        while self._parts:
            self._parts.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def attach(model: torch.nn.Module, group=None, codec: str = "none", op: str = "avg", weight: float = 1.0, *,
           on_poison: str = "nan", **compressor) -> Attached:
    """Makes all members train one model: parameters and buffers come from rank 0, and gradients are averaged.

    >>> import hearth.torch, torch
    >>> def train(group):
    ...     model = torch.nn.Linear(2, 1, bias=False)
    ...     with hearth.torch.attach(model, group, codec="topk:0.01") as attached:
    ...         model(torch.full((1, 2), float(group.rank))).sum().backward()
    ...         attached.wait()  # and then optimizer.step()
    ...     return model.weight.grad.tolist()
    >>> hearth.local(train, 2)
    [[[0.5, 0.5]], [[0.5, 0.5]]]

    Gradients travel while backward is computing others.

    Args:
        group: a hearth.Group or torch process group; None: all processes
        op: "avg" or "sum"
        weight: of this member in the average
        on_poison: NaN or Inf in a compressed gradient makes all gradients "nan" on all members, or "raise"s
        compressor: further options of hearth.Compressor: min_count, vectors, include, exclude, warmup_steps, ...
    """
    return Attached(model, group, {"codec": codec, **compressor}, op, weight, on_poison)
