# SPDX-License-Identifier: Apache-2.0
"""Hearth for PyTorch: gradients of DistributedDataParallel, compressed, and bit-identical on every replica.

One line in a script that trains with DDP:

    ddp.register_comm_hook(hearth.torch.State("topk:0.01"), hearth.torch.hook)

or, with readable names of the parameters, `state = hearth.torch.register(ddp, codec="topk:0.01")`.
`attach` is for training without DDP. `dist.init_process_group("hearth")` makes everything else of torch.distributed
travel by Hearth too.
"""

from . import _backend  # noqa: F401  (makes init_process_group("hearth") known)
from ._attach import Attached, attach
from ._hook import State, hook, register
from ._meeting import node

__all__ = ["Attached", "State", "attach", "hook", "node", "register"]
