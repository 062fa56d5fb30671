# SPDX-License-Identifier: Apache-2.0
"""The DDP hook: plain training is gloo's, and with every codec all replicas are the same in every step."""

import math
from pathlib import Path

import fashion  # noqa: F401  (skips this file if there are no pictures)
import torchranks

SCENES = Path(__file__).with_name("hookscenes.py")


class Two(torchranks.Scenes):
    file = SCENES
    names = ("plain_convolution", "plain_transformer", "plain_bucket_view", "plain_static_graph",
             "plain_unused_parameters", "plain_operations", "other_types", "codecs", "transformer_learns", "policy",
             "weights", "two_models", "options_differ", "sparse_refused", "loader", "never_blocks", "late", "uneven",
             "many", "wrapped", "let_go", "attached", "closed", "left_open")

    def beside_gloo(self, scene):
        for gloo, hearth in self.of(scene):
            for a, b in zip(gloo, hearth):
                self.assertTrue(math.isclose(a, b, rel_tol=2e-4), f"{gloo}\n{hearth}")
            self.assertNotEqual(gloo[0], gloo[-1])

    def test_plain_convolution(self):
        self.beside_gloo("plain_convolution")

    def test_plain_transformer(self):
        self.beside_gloo("plain_transformer")

    def test_gradients_as_views_of_buckets(self):
        self.beside_gloo("plain_bucket_view")

    def test_static_graph(self):
        self.beside_gloo("plain_static_graph")

    def test_unused_parameters(self):
        self.beside_gloo("plain_unused_parameters")

    def test_as_few_operations_as_possible(self):
        for plain, mixed in self.of("plain_operations"):
            self.assertEqual(plain, [[0, 1]] * len(plain))
            self.assertEqual(mixed, [[2, 1]])

    def test_other_types_and_layouts(self):
        for errors in self.of("other_types"):
            self.assertLess(errors["f64"], 1e-6)
            self.assertLess(errors["f16"], 0.001)
            self.assertLess(errors["f32"], 1e-6)

    def test_replicas_with_every_codec(self):
        for result in self.of("codecs"):
            for codec, (identical, loss, ratio) in result.items():
                self.assertEqual(identical, [True] * 3, codec)
                self.assertTrue(math.isfinite(loss), codec)
                self.assertGreaterEqual(ratio, 1.0, codec)
            self.assertGreater(result["topk:0.05"][2], 3)
            self.assertGreater(result["int8"][2], 2)

    def test_transformer_learns(self):
        for first, last, identical in self.of("transformer_learns"):
            self.assertLess(last, 0.9 * first)
            self.assertTrue(identical)

    def test_policy_and_warm_up(self):
        for texts, tensors, ratio in self.of("policy"):
            self.assertEqual(tensors, [[], [], ["5.weight"]])
            self.assertRegex(texts[0], r"5\.weight, 40x1152: plain \(warm-up\)")
            self.assertRegex(texts[2], r"5\.weight.*topk.*rule '5\.weight'")
            self.assertRegex(texts[2], r"2\.weight, 32x16x3x3: plain \(excluded\)")
            self.assertRegex(texts[2], r"0\.bias, 16: plain \(has fewer than two dimensions\)")
            self.assertRegex(texts[2], r"7\.weight, 10x40: plain \(fewer than 1000 elements\)")
            self.assertGreater(ratio, 1.2)

    def test_weights(self):
        for error in self.of("weights"):
            self.assertLess(error, 1e-6)

    def test_two_models_never_meet(self):
        for result in self.of("two_models"):
            self.assertEqual(result, [True] * 3)

    def test_different_options_are_told(self):
        for text, kind, peer in self.of("options_differ"):
            self.assertIn("rank 1 has other options than rank 0: codec is 'int8' there, 'topk:0.01' at rank 0", text)
            self.assertEqual((kind, peer), ("Mismatch", 1))

    def test_sparse_gradients_are_refused(self):
        for text in self.of("sparse_refused"):
            self.assertIn("sparse gradients", text)

    def test_workers_of_a_loader(self):
        for result in self.of("loader"):
            self.assertEqual(result, [8, True])

    def test_autograd_is_never_blocked(self):
        for rank, (identical, returned) in enumerate(self.of("never_blocks")):
            self.assertTrue(identical)
            self.assertFalse(any(returned))
            self.assertEqual(len(returned) > 0, rank == 0)

    def test_deadline(self):
        (text, kind), (other_text, _) = self.of("late")
        self.assertRegex(text, r"rank 1\b")
        self.assertEqual(kind, "Timeout")
        self.assertRegex(other_text, r"rank 0\b")

    def test_uneven_data(self):
        self.assertEqual(self.of("uneven"), [[True, 3]] * 2)

    def test_more_parameters_than_operations(self):
        self.assertEqual(self.of("many"), [[[1.5], 2, 1500]] * 2)

    def test_in_a_wrapper_of_torch(self):
        for gloo, wrapped in self.of("wrapped"):
            for a, b in zip(gloo, wrapped):
                self.assertTrue(math.isclose(a, b, rel_tol=0.01), f"{gloo}\n{wrapped}")

    def test_goes_with_its_model(self):
        self.assertEqual(self.of("let_go"), [[True] * 3] * 2)

    def test_attached(self):
        self.assertEqual(self.of("attached"), [[True] * 3] * 2)

    def test_closed(self):
        for text in self.of("closed"):
            self.assertIn("the State is closed", text)

    def test_ends_although_nobody_closed(self):
        self.assertEqual(self.of("left_open"), [True] * self.size)
        for rank in self.ranks:
            self.assertEqual(rank.status, 0, rank.log[-4000:])
