"""What values keep to: found where it is no chance, and kept in everything that is drawn."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.sandboxed.runner.subject import Subject
from cudal1_ci.sandboxed.timing.new_inputs import Stock
from cudal1_ci.sandboxed.tracer.describe import describe_tensor
from cudal1_ci.sandboxed.tracer.invariants import invariants_of
from cudal1_ci.sandboxed.verifier.inputs import InputSet, Source, draw, invariants_in
from cudal1_ci.sandboxed.verifier.invariants import are_movable, common, impose
from cudal1_ci.sandboxed.verifier.variations import variations
from cudal1_ci.sandboxed.wire.arguments import Call, Made
from cudal1_ci.sandboxed.wire.programs import TextProgram
from tests.unit.sandboxed.messages import spec
from tests.unit.sandboxed.test_fresh import stock_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


CORNERS = torch.rand(16, 2, generator=generator())
BOXES = torch.cat([CORNERS, CORNERS + 0.1 + torch.rand(16, 2, generator=generator(1))], 1)
FACTORS = torch.randn(3, 8, 8, generator=generator())
SQUARES = FACTORS @ FACTORS.mT + torch.eye(8)
FOUND = [
    (torch.tensor([0, 3, 3, 7, 9]), ["offsets"]),
    (torch.tensor([2, 3, 3, 7, 9]), ["sorted"]),
    (torch.tensor([[9, 7, 7, 1], [4, 4, 2, 0]]), ["descending"]),
    (torch.randperm(64, generator=generator()), ["permutation"]),
    (1 + torch.randperm(64, generator=generator()), ["unique"]),
    (torch.arange(8) < torch.tensor([[3], [8], [5]]), ["prefix"]),
    ((torch.arange(8) < torch.tensor([[3], [8], [5]])).long(), ["descending", "prefix"]),
    (BOXES, ["pairs"]),
    (torch.randn(4, 9, generator=generator()).softmax(-1), ["shares"]),
    (torch.randn(4, 9, generator=generator()).softmax(-1).half(), ["shares"]),
    (torch.linspace(-1, 1, 9).repeat(3, 1), ["sorted"]),
    (SQUARES, ["definite"]),
    (SQUARES[0].half().float(), ["definite"]),
]
NOTHING = [
    torch.randn(8, 4, generator=generator()),
    torch.rand(8, 9, generator=generator()),
    torch.randint(0, 9, (4, 16), generator=generator()),
    torch.randint(0, 2**40, (8,), generator=generator()),  # unique by chance
    torch.ones(4, 8, dtype=torch.bool),
    torch.eye(8),  # one of one number each
    FACTORS + FACTORS.mT,
    torch.ones(8, 8),
    torch.zeros(3, 8, dtype=torch.long),
    torch.arange(3),
    torch.tensor(1.0),
    torch.ones(0, 4),
    torch.ones(4, 4, dtype=torch.complex64),
    torch.randn(4, 4, device="meta"),
    torch.ones(4).to(torch.float8_e5m2),
]


@pytest.mark.parametrize(("tensor", "names"), FOUND)
def test_what_values_keep_to_is_recorded(tensor, names):
    assert invariants_of(tensor) == names
    assert describe_tensor(tensor)["invariants"] == names


@pytest.mark.parametrize("tensor", NOTHING)
def test_what_may_be_chance_is_not_recorded(tensor):
    assert invariants_of(tensor) == []
    assert "invariants" not in describe_tensor(tensor)


DRAWN = [
    (spec((3, 9), "int64", low=5, high=40, invariants=("sorted",)), "sorted"),
    (spec((3, 9), "int32", low=5, high=40, invariants=("descending",)), "descending"),
    (spec((3, 20), "int64", low=3, high=30, invariants=("unique",)), "unique"),
    (spec((40,), "int64", low=0, high=39, invariants=("permutation",)), "permutation"),
    (spec((9,), "int64", low=0, high=100, invariants=("offsets",)), "offsets"),
    (spec((5, 9), "bool", low=0, high=1, invariants=("prefix",)), "prefix"),
    (spec((16, 4), low=0.0, high=50.0, invariants=("pairs",)), "pairs"),
    (spec((16, 9), "bfloat16", low=0.0, high=1.0, invariants=("shares",)), "shares"),
    (spec((3, 9), low=-1.0, high=1.0, invariants=("sorted", "range")), "sorted"),
    (spec((3, 9), "int64", stride=(0, 1), low=5, high=40, invariants=("sorted",)), "sorted"),
    (spec((3, 9), stride=(0, 1), low=-1.0, high=1.0, invariants=("sorted", "range")), "sorted"),
]


@pytest.mark.parametrize(("one", "name"), DRAWN)
def test_what_is_drawn_keeps_to_it_and_is_other_every_time(one, name):
    found = [draw(one, generator(seed)) for seed in range(5)]
    for tensor in found:
        assert tensor.dtype == getattr(torch, one.dtype)
        assert tensor.shape == one.shape
        assert one.stride in (None, tensor.stride())
        assert name in invariants_of(tensor)
        if name != "pairs":
            assert float(tensor.float().min()) >= one.low
            assert float(tensor.float().max()) <= one.high
    assert not all(torch.equal(found[0], other) for other in found[1:])


def test_sorted_and_unique_numbers_are_both():
    drawn = draw(spec((30,), "int64", low=1, high=40, invariants=("sorted", "unique")), generator())
    assert bool((drawn.diff() > 0).all())
    assert 1 <= int(drawn[0]) < int(drawn[-1]) <= 40


def test_offsets_end_with_the_highest_number():
    drawn = draw(spec((7,), "int64", low=0, high=50, invariants=("offsets",)), generator())
    assert (int(drawn[0]), int(drawn[-1])) == (0, 50)


def test_boxes_that_functions_make_are_never_empty_in_trials_or_rounds():
    base = InputSet([BOXES, torch.randn(16, generator=generator())])
    source = Source(call=Call(), made=[base], invariants=invariants_in([base]))
    assert source.invariants == [("pairs",), ()]
    memory = [torch.empty_like(tensor) for tensor in base.tensors]
    stock: Stock = stock_of(source, [base])
    stock.renew(0, memory)
    stock.change_few(memory)
    assert not torch.equal(memory[0], BOXES)
    for name, one in [*variations(source, generator(), 2**24), ("round", InputSet(memory))]:
        sides = one.tensors[0][:, 2:] - one.tensors[0][:, :2]
        assert bool((sides > 0).all()), name


def test_values_stay_in_a_stated_range_in_all_trials():
    one = spec((64, 8), low=-1.0, high=1.0, invariants=("range",))
    source = Source(call=Call(), specs=[one], invariants=[one.invariants])
    trials = variations(source, generator(), 2**24)
    assert len(trials) > 10
    for name, found in trials:
        low, high = torch.aminmax(found.tensors[0])
        assert -1 <= float(low) <= float(high) <= 1, name


def test_rows_of_zeros_become_equal_shares():
    rows = torch.tensor([[0.0, 0.0], [-3.0, 1.0]])
    impose(rows, ("shares",), None, None)
    assert rows.tolist() == [[0.5, 0.5], [0.75, 0.25]]


@pytest.mark.parametrize(
    ("names", "may"),
    [((), True), (("unique",), True), (("permutation",), True), (("sorted", "unique"), False)],
)
def test_whole_numbers_move_only_where_they_stay_what_they_are(names, may):
    assert are_movable(names) is may


MASKED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, attention_mask, scale):
        return x + (1 - attention_mask) * scale

def get_inputs():
    return [torch.randn(2, 8), torch.ones(2, 8), torch.ones(2, 8)]
"""


def test_a_mask_of_floats_is_known_by_its_name_and_stays_one(tmp_path):
    subject = Subject(tmp_path)
    text = TextProgram(source=MASKED, entry="Model")
    (call,) = subject.make(text, Made(function="get_inputs"), [0]).calls
    assert call.masks == (1,)

    made = [InputSet(subject.kept[0], masks=call.masks)]
    assert invariants_in(made) == [(), ("flags",), ()]
    source = Source(call=Call(), made=made, invariants=invariants_in(made))
    sets = dict(variations(source, generator(), 2**30))
    assert all(((one.tensors[1] == 0) | (one.tensors[1] == 1)).all() for one in sets.values())
    assert bool(sets["drawn 1"].tensors[1].all())
    assert not bool(sets["zeros"].tensors[1].any())
    assert 0 < int(sets["outliers"].tensors[1].sum()) < 16
    assert sets["large"].tensors[2].max() > 2  # of another name


@pytest.mark.parametrize("values", [torch.full((4,), -1e9), torch.zeros(4), torch.rand(4)])
def test_an_additive_mask_is_no_mask_of_zeros_and_ones(values):
    assert invariants_in([InputSet([values], masks=(0,))]) == [common([values])]
