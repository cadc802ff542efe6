"""Training calls that are replayed as CUDA graphs give what the plain module gives: outputs,
gradients, buffers and random numbers. Without a GPU a graph is what was computed while it was
recorded, computed again."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import cudal1_ci

LIBRARY = Path(cudal1_ci.__file__).parent / "kernels" / "training_graph.py"


class FakeGraph:
    """A CUDA graph on a CPU."""

    num_replays = 0

    def pool(self):
        return None

    def replay(self):
        self.num_replays += 1
        self.again()


@pytest.fixture
def library(monkeypatch, device):
    """The module, and on a CPU a stand-in for what it needs of torch.cuda."""
    names = {}
    text = LIBRARY.read_text()
    if device == "cuda":
        exec(text, names)
        return names
    exec(text.replace("one.is_cuda", "True").replace('DEVICE = "cuda"', 'DEVICE = "cpu"'), names)

    class Stream:
        def wait_stream(self, other): ...

    stream = Stream()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda _, **given: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _=None: torch.get_rng_state())
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, _=None: torch.set_rng_state(state)
    )
    recorded = names["RecordedStep"]
    record = recorded.record

    def remembered(self, module):
        record(self, module)
        made = {}

        def forth():
            with torch.enable_grad():
                made["leaves"] = self.called(module, self.arguments, self.aliases)
            for n in self.places:
                self.leaves[n].copy_(made["leaves"][n].detach())

        def back():
            found = self.differentiated(made["leaves"], self.given)
            for own, one in zip(self.reached, [g for g in found if g is not None], strict=True):
                own.copy_(one)

        self.forth.again, self.back.again = forth, back

    monkeypatch.setattr(recorded, "record", remembered)
    return names


class Block(nn.Module):
    """Draws, keeps statistics, has a weight that nothing reaches, and an output that no gradient
    leaves."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)
        self.drop = nn.Dropout(drop)
        self.scale = 2.0
        self.calls = torch.zeros(())

    def forward(self, x, y=None):
        self.calls += 1  # in place, and no buffer
        x = self.drop(self.last(self.norm(x).tanh())) * self.scale
        found = {"first": x if y is None else x * y, "squares": x.square(), "none": None}
        return found | {"most": x.argmax(-1)}


def a_pair(library, device, drop=0.0):
    """Return a plain module and one that is recorded, with the same weights, and the steps."""
    torch.manual_seed(0)
    plain = Block(drop).to(device)
    plain.calls = plain.calls.to(device)
    replayed = copy.deepcopy(plain)
    steps = []
    recorded = library["RecordedStep"]

    class Counted(recorded):
        def __init__(self, *args):
            super().__init__(*args)
            steps.append(self)

    class Graphed(Block):
        forward = library["graphed_in_training"](Block.forward)

    library["graphed_in_training"].__globals__["RecordedStep"] = Counted
    replayed.__class__ = Graphed
    return plain, replayed, steps


def drawn(device, *shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def same(plain, replayed, rtol=0.0):
    """Gradients and buffers are the same, bit for bit unless a tolerance is given."""
    for (name, one), other in zip(plain.named_parameters(), replayed.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=rtol, atol=rtol)
        torch.testing.assert_close(other, one, rtol=0, atol=0)
    assert torch.equal(plain.calls, replayed.calls)
    for one, other in zip(plain.buffers(), replayed.buffers(), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def on_both(plain, replayed, act):
    """Do the same with both, from the same random state; return what came of it."""
    torch.manual_seed(3)
    first = act(plain)
    drew = torch.rand(1, device=next(plain.parameters()).device)
    torch.manual_seed(3)
    second = act(replayed)
    assert torch.equal(drew, torch.rand(1, device=drew.device)), "draws as many numbers"
    return first, second


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_steps_of_an_optimizer_are_those_of_the_plain_module(library, device, drop):
    plain, replayed, steps = a_pair(library, device, drop)

    def trained(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        kept = []
        for number in range(6):
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            for seed in range(1 + number % 2):  # gradients add up
                found = model(drawn(device, 4, 8, seed=10 * number + seed))
                (found["first"].sum() + found["squares"].mean()).backward()
                kept.append((found["first"], found["most"], found["first"].detach().clone()))
            optimizer.step()
        assert all(torch.equal(one, then) for one, _, then in kept), "no later call changes it"
        return [(first.detach(), most) for first, most, _ in kept]

    first, second = on_both(plain, replayed, trained)
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)
    same(plain, replayed)
    assert [one.draws for one in steps] == [drop > 0]
    assert replayed.unused.weight.grad is None


def test_gradients_lie_in_memory_of_their_own(library, device):
    _, replayed, _ = a_pair(library, device)
    kept = []
    for _ in range(2):
        replayed.zero_grad()
        replayed(drawn(device, 4, 8))["first"].sum().backward()
        kept.append(replayed.last.weight.grad)
    assert kept[0].data_ptr() != kept[1].data_ptr()
    torch.testing.assert_close(kept[0], kept[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda model, x, y: model(x, y),
        lambda model, x, y: model(x, y=y),
        lambda model, x, y: model(y=y, x=x),
    ],
    ids=["in order", "some named", "all named"],
)
def test_an_input_has_its_gradient(library, device, call):
    plain, replayed, steps = a_pair(library, device)

    def act(model):
        x = drawn(device, 4, 8).requires_grad_()
        y = (x * 2).sin()
        for _ in range(2):
            call(model, y, x)["first"].square().sum().backward(retain_graph=True)
        return x.grad

    first, second = on_both(plain, replayed, act)
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    same(plain, replayed)
    assert len(steps) == 1


class Lists(Block):
    """Takes its tensors in a list and a dict."""

    def forward(self, parts, named):
        return Block.forward(self, parts[0], named["y"][1])


@pytest.mark.parametrize("changes", [False, True])
def test_arguments_may_be_lists_and_dicts(library, device, changes):
    plain, replayed, steps = a_pair(library, device)

    def forward(self, parts, named):
        if changes:
            parts.append(parts[0])
        return Lists.forward(self, parts, named)

    plain.__class__ = Lists
    replayed.__class__ = type(
        "Graphed", (Lists,), {"forward": library["graphed_in_training"](forward)}
    )

    def act(model):
        x = drawn(device, 4, 8).requires_grad_()
        for _ in range(2):
            found = model([x, None], {"y": (3, x.sin())})
            found["first"].square().sum().backward(retain_graph=True)
        return x.grad

    if changes:
        with pytest.raises(RuntimeError, match="changes lists"):
            act(replayed)
        return
    first, second = on_both(plain, replayed, act)
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    same(plain, replayed)
    assert len(steps) == 1


def two_before_one(model, device):
    """A loss of two calls."""
    first, second = (model(drawn(device, 4, 8, seed=n))["first"] for n in (1, 2))
    (first * second).sum().backward()


def twice(model, device):
    loss = model(drawn(device, 4, 8))["first"].square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


def penalty(model, device):
    x = drawn(device, 4, 8).requires_grad_()
    found = model(x)["first"].square().sum()
    (gradient,) = torch.autograd.grad(found, x, create_graph=True)
    gradient.square().sum().backward()


def chained(model, device):
    """The second call's argument is made of the same weights, and not every output is used."""
    first = model(drawn(device, 4, 8))["first"]
    model(first)["first"].square().sum().backward()


def after_another(model, device):
    """The first backward pass comes after the second call."""
    first = model(drawn(device, 4, 8, seed=1))["first"].sum()
    model(drawn(device, 4, 8, seed=2))["first"].sum().backward()
    first.backward()


def one_output(model, device):
    model(drawn(device, 4, 8))["squares"].sum().backward()


def unread(model, device):
    """Calls whose outputs are dropped."""
    for seed in range(3):
        model(drawn(device, 4, 8, seed=seed))
    one_output(model, device)


def checkpointed(model, device):
    run = torch.utils.checkpoint.checkpoint
    run(model, drawn(device, 4, 8), use_reentrant=False)["first"].sum().backward()


def evaluated(model, device):
    model.eval()
    model(drawn(device, 4, 8))["first"].sum().backward()
    with torch.no_grad():
        model(drawn(device, 4, 8))
    model.train()


def frozen(model, device):
    model.last.weight.requires_grad_(False)
    one_output(model, device)


def rescaled(model, device):
    model.scale = 3.0
    one_output(model, device)


def moved(model, device):
    model.last.weight.data = model.last.weight.data.clone()
    one_output(model, device)


def hooked(model, device):
    handle = model.last.register_forward_hook(lambda *_: _[-1] * 2)
    one_output(model, device)
    handle.remove()


def other_shape(model, device):
    for rows in (3, 4, 5):
        model(drawn(device, rows, 8), drawn(device, rows, 8))["first"].sum().backward()


def many_shapes(model, device):
    for rows in range(2, 14):
        model(drawn(device, rows, 8))["first"].sum().backward()


WAYS = [
    *(two_before_one, chained, twice, penalty, after_another, one_output, unread, checkpointed),
    evaluated,
    *(frozen, rescaled, moved, hooked, other_shape, many_shapes),
]


@pytest.mark.parametrize("drop", [0.0, 0.5])
@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
def test_whatever_is_done_with_a_call_is_what_it_was(library, device, way, drop):
    plain, replayed, steps = a_pair(library, device, drop)

    def act(model):
        for _ in range(2):
            model(drawn(device, 4, 8))["squares"].mean().backward()
            way(model, device)
        model(drawn(device, 4, 8))["first"].mean().backward()

    on_both(plain, replayed, act)
    same(plain, replayed, 1e-6 * (way is penalty))  # which adds up in another order
    assert 1 <= len(steps) <= library["MAX_STEPS"]


def test_what_cannot_be_recorded_runs_as_before(library, device):
    outside = drawn(device, 8).requires_grad_()

    class Reaching(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(8, 8)

        @library["graphed_in_training"]
        def forward(self, x):
            return self.last(x) * outside

    class Counting(Reaching):
        number = 0

        @library["graphed_in_training"]
        def forward(self, x):
            self.number += 1
            return self.last(x)

    model = Reaching().to(device)
    for _ in range(2):
        model(drawn(device, 4, 8)).sum().backward()
    assert outside.grad is not None
    with pytest.raises(RuntimeError, match="replaces what its module holds"):
        model = Counting().to(device)
        model.number = 0
        model(drawn(device, 4, 8))


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_autocast_is_that_of_the_call(library, device, drop):
    plain, replayed, steps = a_pair(library, device, drop)
    dtypes = []

    def act(model):
        for number in range(3):
            with torch.autocast(device, torch.bfloat16):
                loss = model(drawn(device, 4, 8))["first"]
            with torch.autocast(device, torch.bfloat16):  # leaving it drops the cast weights
                again = model(drawn(device, 4, 8, seed=2))["first"] if number else loss
            dtypes.append(loss.dtype)
            (loss.sum() + again.sum()).backward(retain_graph=number == 2)
            model(drawn(device, 4, 8))["first"].sum().backward()
        loss.sum().backward()

    on_both(plain, replayed, act)
    same(plain, replayed)
    assert {*dtypes} == {torch.bfloat16}
    assert len(steps) == 2
    assert torch.is_autocast_cache_enabled()
