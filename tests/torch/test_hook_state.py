# SPDX-License-Identifier: Apache-2.0
"""What the DDP hook keeps: through checkpoints, new buckets, accumulation, loss scales and poisoned steps."""

import torchranks
from test_hook import SCENES


class Kept(torchranks.Scenes):
    file = SCENES
    names = ("resume", "resume_plain", "resume_refused", "rolled_back", "pickled", "rebuilt", "accumulation", "loss_scale",
             "poison", "poison_raises")

    def resumed(self, scene):
        for result in self.of(scene):
            for case, equal in result.items():
                self.assertEqual(equal, [True] * 3, f"{case}: losses, parameters, stats")

    def test_resumed_is_uninterrupted(self):
        self.resumed("resume")

    def test_resumed_with_other_buckets(self):
        self.resumed("resume_plain")

    def test_states_of_others_are_refused(self):
        for rank, (other_rank, shape, unnamed, version, step) in enumerate(self.of("resume_refused")):
            self.assertIn(f"of rank {rank + 1} of 2, this is rank {rank} of 2", other_rank)
            self.assertIn("of another model: 5.weight, of shape (40, 1152), has the shape (1, 2) there", shape)
            self.assertIn("is not there: that one was made with another `model`", unnamed)
            self.assertIn("version 99", version)
            self.assertEqual(step, 2)

    def test_back_to_an_earlier_step(self):
        self.assertEqual(self.of("rolled_back"), [[True, 2]] * 2)

    def test_pickle(self):
        self.assertEqual(self.of("pickled"), [True] * 2)

    def test_new_buckets(self):
        for changed, steps in self.of("rebuilt"):
            self.assertTrue(changed, "DDP did not rebuild its buckets: this tests nothing")
            self.assertEqual(steps, {"2.weight": 3, "5.weight": 3})

    def test_accumulation_is_one_step(self):
        for equal, steps, identical in self.of("accumulation"):
            self.assertTrue(equal)
            self.assertEqual(steps, [3, 3])
            self.assertTrue(identical)

    def test_loss_scale(self):
        self.assertEqual(self.of("loss_scale"), [True] * 2)

    def test_poison(self):
        for result in self.of("poison"):
            self.assertEqual(result, [True] * 6)

    def test_poison_raises(self):
        for text, kind, goes_on in self.of("poison_raises"):
            self.assertRegex(text, r"rank 1\b")
            self.assertEqual(kind, "Poisoned")
            self.assertTrue(goes_on)
