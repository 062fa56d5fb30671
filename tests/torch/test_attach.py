# SPDX-License-Identifier: Apache-2.0
"""Training without DDP: members are threads of this process."""

import threading
import unittest

import torch
from torch import nn

import fashion
import hearth
import hearth.torch

BATCH = 16
ONE_DRAWS = threading.Lock()  # torch's generator belongs to all threads


class Member:
    """One thread's model in training. All begin with the parameters that rank 0 has."""

    def __init__(self, group, model="convolution", **options):
        self.group = group
        with ONE_DRAWS:
            torch.manual_seed(1 + group.rank)
            self.net = fashion.MODELS[model]()
        self.attached = hearth.torch.attach(self.net, group, **options)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.pictures, self.at = fashion.pictures(1024), 0

    def backward(self):
        at = (self.at * self.group.size + self.group.rank) * BATCH % 1000
        self.at += 1
        images, labels = (part[at:at + BATCH] for part in self.pictures)
        loss = nn.functional.cross_entropy(self.net(images), labels)
        loss.backward()
        return loss.item()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.backward()
        self.attached.wait(30.0)
        self.optimizer.step()
        return loss

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.net.parameters()])

    def gradients(self):
        return torch.cat([p.grad.reshape(-1) for p in self.net.parameters()])


class Attach(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.threads = torch.get_num_threads()
        torch.set_num_threads(1)

    @classmethod
    def tearDownClass(cls):
        torch.set_num_threads(cls.threads)

    def test_average_of_all(self):
        """Gradients are those of one process with the whole batch; a weight of 0 leaves a member out."""
        def train(group, weights):
            member = Member(group, weight=weights[group.rank])
            own = Member(hearth.open_local(1)[0].world)
            own.net.load_state_dict(member.net.state_dict())
            member.backward()
            member.attached.wait(30.0)
            own.group = group
            own.attached.close()
            own.backward()
            return own.gradients(), member.gradients()

        for weights in ([1.0, 1.0, 1.0], [1.0, 0.0, 3.0]):
            results = hearth.local(train, 3, weights)
            expected = sum(w * own for w, (own, _) in zip(weights, results)) / sum(weights)
            for _, got in results:
                self.assertTrue(torch.allclose(got, expected, atol=1e-6))

    def test_replicas_and_resume(self):
        def train(group, codec):
            member, same = Member(group, codec=codec, min_count=1000), []
            for _ in range(3):
                member.step()
                same.append(group.same(member.flat()))
            kept = [member.attached.state_dict(), member.net.state_dict(), member.optimizer.state_dict(), member.at]
            kept = [torch.clone(v) if torch.is_tensor(v) else v for v in kept]
            kept[1] = {name: value.clone() for name, value in kept[1].items()}
            kept[2] = {**kept[2], "state": {i: {k: v.clone() for k, v in s.items()}
                                            for i, s in kept[2]["state"].items()}}
            member.step()
            again = Member(group, codec=codec, min_count=1000)
            again.attached.load_state_dict(kept[0])
            again.net.load_state_dict(kept[1])
            again.optimizer.load_state_dict(kept[2])
            again.at = kept[3]
            again.step()
            return same, torch.equal(member.flat(), again.flat())

        for codec in ("none", "topk:0.02", "powersgd:2", "int8"):
            for same, resumed in hearth.local(train, 2, codec):
                self.assertEqual(same, [True] * 3, codec)
                self.assertTrue(resumed, codec)

    def test_transformer_learns(self):
        def train(group):
            member = Member(group, "transformer", codec="topk:0.1", min_count=1000)
            losses = [member.step() for _ in range(30)]
            return losses[0], sum(losses[-4:]) / 4

        for first, last in hearth.local(train, 2):
            self.assertLess(last, 0.9 * first)

    def test_accumulation(self):
        def train(group):
            member, other = Member(group), Member(group)
            with member.attached.no_sync():
                member.backward()
            member.backward()
            member.attached.wait(30.0)
            other.backward()
            other.attached.wait(30.0)
            first = other.gradients()
            other.optimizer.zero_grad()
            other.backward()
            other.attached.wait(30.0)
            return torch.allclose(member.gradients(), first + other.gradients(), atol=1e-6)

        self.assertEqual(hearth.local(train, 2), [True] * 2)

    def test_backward_twice_is_told(self):
        def train(group):
            member = Member(group)
            member.backward()
            try:
                member.backward()
            except RuntimeError as error:
                return str(error)

        for text in hearth.local(train, 2):
            self.assertIn("no_sync()", text)

    def test_poison(self):
        def train(group, on_poison):
            member = Member(group, codec="int8", min_count=1000, on_poison=on_poison)
            member.step()
            member.optimizer.zero_grad()
            if group.rank == 1:
                member.net[5].weight.register_hook(lambda gradient: gradient * float("nan"))
            member.backward()
            try:
                member.attached.wait(30.0)
            except hearth.Poisoned as error:
                return str(error)
            return bool(member.gradients().isnan().all())

        self.assertEqual(hearth.local(train, 2, "nan"), [True] * 2)
        for text in hearth.local(train, 2, "raise"):
            self.assertIn("rank 1", text)

    def test_parameters_without_a_gradient(self):
        def train(group):
            net = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)])
            with hearth.torch.attach(net, group) as attached:
                net[group.rank](torch.ones(1, 4)).sum().backward()
                attached.wait(30.0)
            return [layer.weight.grad.mean().item() for layer in net]

        self.assertEqual(hearth.local(train, 2), [[0.5, 0.5]] * 2)

    def test_channels_last_and_buffers(self):
        def train(group):
            net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)
            net[1].running_mean.fill_(group.rank + 7)
            with hearth.torch.attach(net, group) as attached:
                mean = net[1].running_mean[0].item()
                net(torch.randn(2, 3, 8, 8)).square().sum().backward()
                attached.wait(30.0)
                gradient = net[0].weight.grad
                return mean, group.same(gradient.contiguous()), group.same(net[0].weight.detach().contiguous())

        self.assertEqual(hearth.local(train, 2), [(7.0, True, True)] * 2)
