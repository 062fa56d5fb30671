# SPDX-License-Identifier: Apache-2.0
"""Scenes of the tests of the DDP hook: what each rank does. See torchranks.py."""

import atexit
import gc
import hashlib
import io
import os
import pickle
import signal
import time
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

_threads = []  # that must have ended when hearth.torch has tidied up: what is registered before it runs after it
atexit.register(lambda: os._exit(3) if any(thread.is_alive() for thread in _threads) else None)

import fashion  # noqa: E402
import hearth.torch as ht  # noqa: E402

BATCH = 16
CODECS = ["none", "fp16", "bf16", "int8", "int8,stochastic,feedback=off", "onebit", "topk:0.05",
          "topk:0.05,chunk=1024,values=int8", "randomk:0.1", "powersgd:2", "powersgd:2,alternate", "auto:topk:0.01,int8"]

_pictures = []


def batch(rank, size, step):
    """Another part of the pictures for each rank and step."""
    if not _pictures:
        _pictures.extend(fashion.pictures())
    at = (step * size + rank) * BATCH % (len(_pictures[0]) - BATCH)
    return _pictures[0][at:at + BATCH], _pictures[1][at:at + BATCH]


class Training:
    """A model, its optimizer, and a number of steps."""

    def __init__(self, model="convolution", codec=None, named=True, ddp=None, lr=0.05, **options):
        torch.manual_seed(1)
        self.net = fashion.MODELS[model]() if isinstance(model, str) else model
        self.ddp = DDP(self.net, **{"bucket_cap_mb": 0.05, **(ddp or {})})
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=lr, momentum=0.9)
        self.state = None
        if codec is not None and named:
            self.state = ht.register(self.ddp, codec, **options)
        elif codec is not None:
            self.state = ht.State(codec, **options)
            self.ddp.register_comm_hook(self.state, ht.hook)
        self.rank, self.size, self.at = dist.get_rank(), dist.get_world_size(), 0

    def loss(self):
        pictures, classes = batch(self.rank, self.size, self.at)
        self.at += 1
        return nn.functional.cross_entropy(self.ddp(pictures), classes)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def losses(self, steps):
        return [self.step() for _ in range(steps)]

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.net.parameters()])

    def digest(self):
        return hashlib.sha256(self.flat().numpy().tobytes()).hexdigest()

    def gradients(self):
        return {name: p.grad.clone() for name, p in self.net.named_parameters()}

    def checkpoint(self):
        file = io.BytesIO()
        torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "at": self.at,
                    "hearth": self.state.state_dict()}, file)
        file.seek(0)
        return file

    def resume(self, file):
        kept = torch.load(file)
        self.net.load_state_dict(kept["net"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.at = kept["at"]
        self.state.load_state_dict(kept["hearth"])


def same(training):
    """Do all replicas hold the same bits?"""
    return ht.node().world.same(training.flat())


def raised(function):
    """The text of the RuntimeError that must come."""
    try:
        function()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


# ---- plain ----

def _beside_gloo(model, **ddp):
    """Losses by gloo's DDP and by the hook."""
    gloo, hearth_ = Training(model, ddp=ddp), Training(model, "none", ddp=ddp)
    result = [gloo.losses(6), hearth_.losses(6)]
    hearth_.state.close()
    return result


def plain_convolution(rank, size):
    return _beside_gloo("convolution")


def plain_transformer(rank, size):
    return _beside_gloo("transformer")


def plain_bucket_view(rank, size):
    return _beside_gloo("convolution", gradient_as_bucket_view=True)


def plain_static_graph(rank, size):
    return _beside_gloo("convolution", static_graph=True)


def plain_operations(rank, size):
    """A bucket where all is plain is one operation; one where some is compressed has one more for each such."""
    found = []
    for codec in ("none", "int8"):
        training = Training(codec=codec, ddp={"bucket_cap_mb": 25})
        training.losses(3)
        layouts = [layout for _, _, layout in training.state._layouts.values()]
        found.append([[len(l.coded), len(l.direct) + bool(l.gathered)] for l in layouts])
        training.state.close()
    return found


class Branches(nn.Module):
    """Uses one of its two branches in each step."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.turn = nn.Linear(784, 64), nn.Linear(784, 64), 0
        self.head = nn.Linear(64, 10)

    def forward(self, pictures):
        self.turn += 1
        branch = self.first if (self.turn + dist.get_rank()) % 2 else self.second
        return self.head(branch(pictures.flatten(1)))


def plain_unused_parameters(rank, size):
    results = []
    for codec in (None, "none"):
        torch.manual_seed(1)
        training = Training(Branches(), codec, ddp={"find_unused_parameters": True})
        results.append(training.losses(6))
    training.state.close()
    return results


class Product(nn.Module):
    """What a CPU can do in f16 too; gloo, which DDP begins with, knows no bf16."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 8, 8))

    def forward(self, picture):
        return (self.weight * picture).float()


def other_types(rank, size):
    """Parameters of f64, f16 and channels_last have the average, like f32: how far they are from it."""
    results = {}
    for name, dtype, layout in (("f64", torch.float64, torch.contiguous_format),
                                ("f16", torch.float16, torch.contiguous_format),
                                ("f32", torch.float32, torch.channels_last)):
        torch.manual_seed(1)
        net = Product().to(dtype=dtype, memory_format=layout)
        ddp = DDP(net)
        state = ht.register(ddp, "none")
        torch.manual_seed(10 + rank)
        picture = torch.randn(4, 3, 8, 8).to(dtype)
        (expected,) = torch.autograd.grad(net(picture).square().mean(), [net.weight])
        ddp(picture).square().mean().backward()
        expected = expected.float().contiguous()
        dist.all_reduce(expected)
        assert net.weight.grad.is_contiguous(memory_format=layout)
        results[name] = float((expected / size - net.weight.grad.float()).abs().max() / expected.abs().max())
        state.close()
    return results


# ---- compressed ----

def codecs(rank, size):
    """Are all replicas the same after each step? And the last loss."""
    result = {}
    for codec in CODECS:
        training = Training(codec=codec, min_count=1000)
        identical, loss = [], 0
        for _ in range(3):
            loss = training.step()
            identical.append(same(training))
        sent = training.state.stats()
        result[codec] = [identical, loss, sent.ratio]
        training.state.close()
    return result


def transformer_learns(rank, size):
    training = Training("transformer", "topk:0.1", min_count=1000)
    losses = training.losses(20)
    result = [losses[0], sum(losses[-4:]) / 4, same(training)]
    training.state.close()
    return result


def policy(rank, size):
    """What is said of each parameter, and who has been through the compressor."""
    state = Training(codec="int8", min_count=1000, rules={"5.weight": "topk:0.1"}, exclude=["2.*"], warmup_steps=2)
    texts, tensors = [], []
    for _ in range(3):
        state.step()
        texts.append(state.state.explain())
        tensors.append(sorted(state.state.stats().tensors))
    ratio = state.state.stats().ratio
    state.state.close()
    return [texts, tensors, ratio]


def weights(rank, size):
    """Members count by their weight."""
    training = Training(codec="none", weight=1.0 + rank)
    training.loss().backward()
    got = training.gradients()
    torch.manual_seed(1)
    net = fashion.convolution()
    expected = None
    for other in range(size):
        pictures, classes = batch(other, size, 0)
        loss = nn.functional.cross_entropy(net(pictures), classes) * (1 + other)
        parts = torch.autograd.grad(loss, list(net.parameters()))
        expected = parts if expected is None else [a + b for a, b in zip(expected, parts)]
    total = size * (size + 1) / 2
    training.state.close()
    return max(float((a - b / total).abs().max()) for a, b in zip(got.values(), expected))


def two_models(rank, size):
    """Two states take turns; each model is what it would be alone."""
    alone = Training(codec="topk:0.05", min_count=1000)
    alone.losses(4)
    one, two = Training(codec="topk:0.05", min_count=1000), Training("transformer", "int8", named=False)
    for _ in range(4):
        one.step()
        two.step()
    result = [alone.digest() == one.digest(), same(one), same(two)]
    for training in (alone, one, two):
        training.state.close()
    return result


# ---- state ----

def _resumed(model, codec, named, steps=6):
    """Is an uninterrupted run the same as one that was resumed in the middle: losses, parameters, stats?"""
    options = {"min_count": 1000, "warmup_steps": 1}
    whole = Training(model, codec, named, **options)
    whole.losses(steps // 2)
    file = whole.checkpoint()
    rest = whole.losses(steps - steps // 2)
    again = Training(model, codec, named, **options)
    again.resume(file)
    result = [rest == again.losses(steps - steps // 2), whole.digest() == again.digest(),
              again.state.stats() == whole.state.stats()]
    whole.state.close()
    again.state.close()
    return result


def resume(rank, size):
    return {f"{codec} {named}": _resumed("convolution", codec, named)
            for codec in ("none", "topk:0.02", "powersgd:2", "randomk:0.05", "int8,stochastic,feedback=off")
            for named in (True, False)}


def resume_plain(rank, size):
    """DDP has other buckets in the first step of a run, and so a parameter stands elsewhere in its sum."""
    return {"wide": _resumed("wide", "none", True)}


def resume_refused(rank, size):
    """States of other ranks, models and versions."""
    training = Training(codec="topk:0.05", min_count=1000)
    training.losses(1)
    kept = training.state.state_dict()
    training.state.close()
    texts = []
    for change in ({"rank": rank + 1}, {"names": {**kept["names"], "5.weight": [1, 2]}}, {"names": {"param.0": [2]}}):
        other = Training(codec="topk:0.05", min_count=1000)
        other.state.load_state_dict({**kept, **change})
        texts.append(raised(other.step))
        other.state.close()
    lenient = Training(codec="topk:0.05", min_count=1000)
    lenient.state.load_state_dict({**kept, "rank": rank + 1}, strict=False)
    lenient.step()
    lenient.state.close()
    try:
        ht.State().load_state_dict({**kept, "version": 99})
    except ValueError as error:
        texts.append(str(error))
    return texts + [lenient.state.step]


def rolled_back(rank, size):
    """The same State goes back to an earlier step."""
    training = Training(codec="topk:0.02", min_count=1000)
    training.losses(2)
    file = training.checkpoint()
    digests = []
    for _ in range(2):
        training.losses(2)
        digests.append(training.digest())
        file.seek(0)
        training.resume(file)
    result = [digests[0] == digests[1], training.state.step]
    training.state.close()
    return result


def pickled(rank, size):
    """A State through pickle goes on where it was."""
    whole = Training(codec="topk:0.02", named=False, min_count=1000)
    whole.losses(3)
    file, text = whole.checkpoint(), pickle.dumps(whole.state)
    whole.losses(2)
    torch.manual_seed(1)
    again = Training()
    kept = torch.load(file)
    again.net.load_state_dict(kept["net"])
    again.optimizer.load_state_dict(kept["optimizer"])
    again.at = kept["at"]
    again.state = pickle.loads(text)
    again.ddp.register_comm_hook(again.state, ht.hook)
    again.losses(2)
    result = whole.digest() == again.digest()
    whole.state.close()
    again.state.close()
    return result


def rebuilt(rank, size):
    """DDP lays out its buckets anew after the first step. Each tensor's state goes on."""
    training = Training(codec="topk:0.05", min_count=1000)
    orders = []
    for _ in range(3):
        training.step()
        orders.append([[training.state._names[id(p)][1] for p in known[0]]
                       for _, known in sorted(training.state._layouts.items())])
    stats = training.state.stats()
    training.state.close()
    return [orders[0] != orders[2], {name: one.steps for name, one in stats.tensors.items()}]


def accumulation(rank, size):
    """Two backwards under no_sync and one outside are like one of the sum, and count as one step."""
    many, one = Training(codec="topk:0.05", min_count=1000), Training(codec="topk:0.05", min_count=1000)
    for _ in range(3):
        many.optimizer.zero_grad()
        with many.ddp.no_sync():
            many.loss().backward()
            many.loss().backward()
        many.loss().backward()
        many.optimizer.step()
        one.optimizer.zero_grad()
        local = [torch.zeros_like(p) for p in one.net.parameters()]
        for _ in range(2):
            pictures, classes = batch(one.rank, one.size, one.at)
            one.at += 1
            loss = nn.functional.cross_entropy(one.net(pictures), classes)
            for sum_, part in zip(local, torch.autograd.grad(loss, list(one.net.parameters()))):
                sum_ += part
        for parameter, sum_ in zip(one.net.parameters(), local):
            parameter.grad = sum_
        one.loss().backward()
        one.optimizer.step()
    result = [many.digest() == one.digest(), [s.steps for s in many.state.stats().tensors.values()], same(many)]
    many.state.close()
    one.state.close()
    return result


class Scaler:
    """What the hook asks of a GradScaler (which has no CPU form in torch 1.13)."""

    def __init__(self, scales):
        self.scales, self.at = scales, 0

    def get_scale(self):
        return self.scales[self.at]


def loss_scale(rank, size):
    """Powers of two are exact: whatever the loss scale does, unscaled gradients have the same bits."""
    digests = []
    for scales in ([1.0] * 5, [1024.0, 1024.0, 256.0, 4096.0, 4096.0]):
        scaler = Scaler(scales)
        training = Training(codec="topk:0.02", min_count=1000, scaler=scaler)
        for scaler.at, scale in enumerate(scales):
            training.optimizer.zero_grad()
            (training.loss() * scale).backward()
            for parameter in training.net.parameters():
                parameter.grad /= scale
            training.optimizer.step()
        digests.append(training.digest())
        training.state.close()
    return digests[0] == digests[1]


def _poisoned_step(training, rank):
    """Rank 1's gradient of one compressed weight becomes infinite in this backward."""
    def spoil(gradient):
        return gradient.fill_(float("inf")) if rank == 1 else gradient
    handle = training.net[5].weight.register_hook(spoil)
    training.optimizer.zero_grad()
    try:
        training.loss().backward()
    finally:
        handle.remove()


def poison(rank, size):
    """NaN at all members, in that tensor only; what was kept is untouched; training goes on."""
    training = Training(codec="topk:0.02", min_count=1000)
    training.losses(2)
    before = training.state.stats().tensors["5.weight"]
    _poisoned_step(training, rank)
    gradients = training.gradients()
    after = training.state.stats().tensors["5.weight"]
    skipped = not all(g.isfinite().all() for g in gradients.values())
    training.step()
    result = [bool(gradients["5.weight"].isnan().all()), bool(gradients["2.weight"].isfinite().all()), skipped,
              before == after, bool(training.flat().isfinite().all()), same(training)]
    training.state.close()
    return result


def poison_raises(rank, size):
    training = Training(codec="topk:0.02", min_count=1000, on_poison="raise")
    training.step()
    text = raised(lambda: _poisoned_step(training, rank))
    kind = type(training.state.error).__name__
    training.losses(2)
    result = [text, kind, training.state.error is None and same(training)]
    training.state.close()
    return result


# ---- around it ----

def never_blocks(rank, size):
    """Rank 1 does not start its second step's operations before rank 0's hook has returned."""
    store, returned = dist.PrefixStore("never_blocks", dist.distributed_c10d._get_default_store()), []

    def watched(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        second = state.step == 1  # the hook counts the last bucket's step
        if rank == 1 and second:
            store.wait([f"{bucket.index()}"])
        future = ht.hook(state, bucket)
        if rank == 0 and second:
            returned.append(future.done())
            store.set(f"{bucket.index()}", "returned")
        return future

    training = Training()
    training.state = ht.State("int8", timeout=20.0, min_count=1000)
    training.ddp.register_comm_hook(training.state, watched)
    training.losses(2)
    training.state.close()
    return [same(training), returned]


def late(rank, size):
    """Rank 1 computes for longer than rank 0 waits."""
    store = dist.PrefixStore("late", dist.distributed_c10d._get_default_store())
    training = Training(codec="int8", timeout=3.0 if rank == 0 else 20.0)
    training.losses(2)  # DDP itself meets in the second
    if rank == 1:
        store.wait(["over"])
    text = raised(training.step)
    store.set("over", "yes")
    kind = type(training.state.error).__name__
    training.state.close()
    return [text, kind]


def uneven(rank, size):
    """DDP's join: those that have no more data take part with zeros."""
    training = Training(codec="topk:0.1", min_count=1000)
    with training.ddp.join():
        training.losses(2 + rank)
    result = [same(training), training.state.step]
    training.state.close()
    return result


class Many(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(2, 2)) for _ in range(count)])

    def forward(self, x):
        return sum((part * x).sum() for part in self.parts)


def many(rank, size):
    """More compressed parameters in one bucket than may be in flight."""
    net = Many(1500)
    ddp = DDP(net)
    state = ht.register(ddp, "fp16", min_count=1)
    for _ in range(2):
        ddp.zero_grad()
        ddp(torch.full((2, 2), 1.0 + rank)).backward()
    result = [sorted({p.grad.mean().item() for p in net.parameters()}), state.stats().steps, len(state.stats().tensors)]
    state.close()
    return result


def wrapped(rank, size):
    """Inside torch's own wrapper, which makes f16 of a bucket."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
    gloo, training = Training(), Training()
    training.state = ht.State("none")
    training.ddp.register_comm_hook(training.state, fp16_compress_wrapper(ht.hook))
    result = [gloo.losses(4), training.losses(4)]
    training.state.close()
    return result


def let_go(rank, size):
    """A model that nobody holds takes its state and the state's group with it."""
    training = Training(codec="int8")
    training.step()
    state, session = weakref.ref(training.state), weakref.ref(training.state._session)
    thread = training.state._session.completion.thread
    del training
    gc.collect()
    thread.join(20)
    return [state() is None, session() is None, not thread.is_alive()]


def subgroup(rank, size):
    """Even and odd ranks train by themselves."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    training = Training(codec="topk:0.1", min_count=1000, ddp={"process_group": groups[rank % 2]})
    training.losses(2)
    mine = training.state._session.group
    result = [mine.rank, mine.size, mine.same(training.flat()), same(training)]
    training.state.close()
    return result


def options_differ(rank, size):
    training = Training(codec="int8" if rank == 1 else "topk:0.01")
    text = raised(training.step)
    result = [text, type(training.state.error).__name__, training.state.error.peer]
    training.state.close()
    return result


def sparse_refused(rank, size):
    ddp = DDP(nn.Embedding(10, 4, sparse=True))
    state = ht.register(ddp, "int8")
    text = raised(lambda: ddp(torch.tensor([1, 2])).sum().backward())
    state.close()
    return text


def loader(rank, size):
    """Worker processes are forked while the node is open."""
    training = Training(codec="topk:0.05", min_count=1000)
    training.step()
    data = torch.utils.data.TensorDataset(*batch(rank, size, 1))
    count = 0
    for _ in range(2):  # workers of the first epoch end, others begin
        for pictures, classes in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
            training.optimizer.zero_grad()
            nn.functional.cross_entropy(training.ddp(pictures), classes).backward()
            training.optimizer.step()
            count += 1
    result = [count, same(training)]
    training.state.close()
    return result


def attached(rank, size):
    """Without DDP, in processes."""
    torch.manual_seed(1 + rank)
    net, identical = fashion.convolution(), []
    with ht.attach(net, codec="topk:0.05", min_count=1000) as attached_:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for step in range(3):
            pictures, classes = batch(rank, size, step)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(pictures), classes).backward()
            attached_.wait(20.0)
            optimizer.step()
            identical.append(ht.node().world.same(torch.cat([p.detach().reshape(-1) for p in net.parameters()])))
    return identical


def closed(rank, size):
    training = Training(codec="int8")
    training.step()
    training.state.close()
    training.state.close()
    return raised(training.step)


def left_open(rank, size):
    """Nobody closes it: the process must end all the same. The last scene."""
    training = Training(codec="int8")
    training.step()
    left_open.kept = training
    _threads.append(training.state._session.completion.thread)
    return _threads[0].is_alive()


# ---- somebody dies ----

def killed(rank, size):
    """Rank 1 kills itself in its fourth backward; the others tell what they get, and when."""
    training = Training("transformer", "topk:0.05", min_count=1000)
    training.losses(3)
    if rank == 1:
        training.net.embed.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    begin = time.monotonic()
    text = raised(training.step)
    again = raised(training.step)
    error = training.state.error
    return [text, again, type(error).__name__, error.peer, time.monotonic() - begin]
