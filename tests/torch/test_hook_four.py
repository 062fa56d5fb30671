# SPDX-License-Identifier: Apache-2.0
"""The DDP hook on four ranks: sums have an order now, and there are groups of some."""

import test_hook
import test_hook_state
import torchranks
from test_hook import SCENES


class Four(torchranks.Scenes):
    file, size = SCENES, 4
    names = ("plain_convolution", "plain_transformer", "codecs", "weights", "resume", "resume_plain", "poison",
             "subgroup", "left_open")

    beside_gloo = test_hook.Two.beside_gloo
    test_plain_convolution = test_hook.Two.test_plain_convolution
    test_plain_transformer = test_hook.Two.test_plain_transformer
    test_replicas_with_every_codec = test_hook.Two.test_replicas_with_every_codec
    test_weights = test_hook.Two.test_weights
    resumed = test_hook_state.Kept.resumed
    test_resumed_with_other_buckets = test_hook_state.Kept.test_resumed_with_other_buckets
    test_resumed_is_uninterrupted = test_hook_state.Kept.test_resumed_is_uninterrupted
    test_poison = test_hook_state.Kept.test_poison
    test_ends_although_nobody_closed = test_hook.Two.test_ends_although_nobody_closed

    def test_subgroup(self):
        for rank, result in enumerate(self.of("subgroup")):
            self.assertEqual(result, [rank // 2, 2, True, False])
