"""What timed rounds are filled with: nothing seen before, within what a workload takes."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory.segment import Segment, place, slot_of, view_of
from cudal1_ci.sandboxed.runner.cotangents import drawn_like, slots_like
from cudal1_ci.sandboxed.timing.new_inputs import Stock, exchange, is_even
from cudal1_ci.sandboxed.timing.timed_rounds import fill_in, new_round
from cudal1_ci.sandboxed.verifier.inputs import (
    InputSet,
    Laid,
    Pool,
    Room,
    Source,
    invariants_in,
    mixable,
    movable,
    same_bits,
)
from cudal1_ci.sandboxed.verifier.variations import (
    EXCHANGED,
    FEWEST_TRIALS,
    one_alone,
    variations,
    with_nan,
    with_outliers,
)
from cudal1_ci.sandboxed.wire.arguments import Call
from tests.unit.sandboxed.messages import spec


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def stock_of(source, base, seed=0):
    return Stock(source, base, random.Random(seed), generator(seed))


def refreshed(tensor, seed=0, **source):
    """New values of a tensor, in memory of the same layout."""
    base = InputSet([tensor])
    if "specs" not in source:
        source["made"] = [base]
    memory = torch.empty_like(tensor)
    stock_of(Source(call=Call(), **source), [base], seed).renew(0, [memory])
    return memory


def pool_of(sets):
    """Sets in one piece."""
    laid, end = [], 0
    for one in sets:
        slots, end = place([slot_of(tensor) for tensor in one], end)
        laid.append(Laid(slots, None))
    flat = torch.zeros(end, dtype=torch.uint8)
    for one, where in zip(sets, laid, strict=True):
        for tensor, slot in zip(one, where.slots, strict=True):
            view_of(flat, slot).copy_(tensor)
    return Pool(flat, laid)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_timed_inputs_change_element_by_element_within_their_range(dtype, is_transposed):
    tensor = torch.ones(7, 50_000, dtype=dtype)  # longer than the pattern
    tensor = tensor.t() if is_transposed else tensor
    changed = refreshed(tensor).abs().float()
    assert bool(((changed >= 0.74) & (changed <= 1.0)).all())
    assert changed.std() > 0.05
    assert not torch.equal(changed[0], changed[1])
    assert not torch.equal(changed, refreshed(tensor, 1).abs().float())
    assert bool((tensor == 1).all())


def test_signs_change_where_both_occur_and_nowhere_else():
    tensor = torch.randn(1000, generator=generator())
    changed = refreshed(tensor)
    share = float((changed.sign() != tensor.sign()).float().mean())
    assert 0.4 < share < 0.6
    assert bool((changed.abs() <= tensor.abs()).all())
    for one_signed in (tensor.abs(), -tensor.abs(), tensor.clamp(min=-0.01)):
        assert torch.equal(refreshed(one_signed).sign(), one_signed.sign())


@pytest.mark.parametrize(
    ("values", "is_signless"),
    [
        ([-1.0, 1.0], True),
        ([-1.0, 3.0], True),
        ([-1.0, 9.0], False),
        ([0.0, 1.0], False),
        ([-float("inf"), 0.5], False),
        ([float("nan"), 1.0], False),
        ([], False),
    ],
)
def test_a_sign_is_free_where_numbers_of_both_are_about_as_large(values, is_signless):
    assert is_even(torch.tensor(values)) is is_signless


def test_zeros_infinities_and_whole_numbers_in_order_stay_what_they_are():
    tensor = torch.tensor([0.0, float("inf"), -float("inf")])
    assert torch.equal(refreshed(tensor), tensor)
    whole = torch.arange(5).reshape(1, 5)
    assert torch.equal(refreshed(whole), whole)


def test_a_call_without_a_tensor_comes_again_as_it_was():
    stock = stock_of(Source(call=Call()), [InputSet([])])
    stock.renew(0, [])
    assert stock.base[0].tensors == []


def test_integers_of_a_stated_range_are_drawn_again():
    one = spec([64], "int64", low=3, high=9)
    changed = refreshed(torch.full((64,), 3), specs=[one])
    assert set(changed.tolist()) == set(range(3, 10))


def test_integers_beside_floats_are_drawn_again_too():
    specs = [
        spec([64], "int64", low=3, high=9),
        spec([64], "float32", low=0.0, high=1.0),
    ]
    base = InputSet([torch.full((64,), 3), torch.full((64,), 0.5)])
    places = [torch.empty_like(tensor) for tensor in base.tensors]
    stock_of(Source(call=Call(), specs=specs), [base]).renew(0, places)
    assert set(places[0].tolist()) == set(range(3, 10))
    assert 0 <= float(places[1].min()) < 0.2 < 0.8 < float(places[1].max()) <= 1


def test_inputs_whose_structure_matters_are_scaled_as_a_whole():
    tensor = torch.eye(4) + 1
    changed = refreshed(tensor, is_rigid=True)
    assert torch.allclose(changed / changed[0, 1], tensor)
    assert not torch.equal(changed, tensor)


def test_sets_of_the_pool_come_once_before_one_comes_again_and_then_in_another_order():
    ids = [torch.randint(0, 50, (1, 12), generator=generator(i)) for i in range(6)]
    base = InputSet([torch.randint(0, 50, (1, 12), generator=generator(99))])
    source = Source(call=Call(), made=[base], pool=pool_of([[one] for one in ids]), moves=[True])
    stock, place_ = stock_of(source, [base]), torch.empty_like(ids[0])
    seen = []
    for _ in range(12):
        stock.renew(0, [place_])
        seen.append(tuple(place_.flatten().tolist()))
    assert sorted(seen[:6]) == sorted(tuple(one.flatten().tolist()) for one in ids)
    assert seen[:6] != [tuple(one.flatten().tolist()) for one in ids], "in an order of its own"
    assert sorted(map(sorted, seen[6:])) == sorted(map(sorted, seen[:6]))
    assert not set(seen[6:]) & set(seen[:6]), "the second time they are not what they were"


def test_sets_that_come_again_are_mixed_with_others_where_rows_are_free():
    ids = [torch.randint(0, 50, (1, 64), generator=generator(i)) for i in range(3)]
    base = InputSet([ids[0]])
    for is_rigid in (False, True):
        source = Source(
            call=Call(),
            made=[base],
            pool=pool_of([[one] for one in ids]),
            moves=[True],
            mixes=[True],
            is_rigid=is_rigid,
        )
        stock, place_ = stock_of(source, [base]), torch.empty_like(ids[0])
        sums = []
        for _ in range(12):
            stock.renew(0, [place_])
            assert 0 <= int(place_.min()) <= int(place_.max()) < 50
            sums.append(int(place_.sum()))
        known = {int(one.sum()) for one in ids}
        assert set(sums[:3]) == known
        assert (len(known & set(sums[3:])) <= 1) is not is_rigid


def test_without_a_pool_sets_of_the_trials_are_mixed():
    ids = [torch.randint(0, 50, (1, 64), generator=generator(i)) for i in range(3)]
    sets = [InputSet([one]) for one in ids] + [InputSet([ids[0][:, :5]])]
    source = Source(call=Call(), made=sets, moves=[True], mixes=[True])
    stock, place_ = stock_of(source, sets[:1]), torch.empty_like(ids[0])
    sums = set()
    for _ in range(12):
        stock.renew(0, [place_])
        sums.add(int(place_.sum()))
    assert len(sums) > 5


def test_rows_are_free_where_numbers_repeat_and_sums_differ():
    ids = torch.tensor([[5, 1, 5], [2, 2, 3]])
    order, one_hot = torch.tensor([2, 0, 1]), torch.tensor([[0, 1, 0], [1, 0, 0]])
    shares, floats = torch.tensor([[2, 3, 2]]), torch.tensor([1.5, 1.5])
    assert mixable([InputSet([ids, order, one_hot, shares, floats, torch.tensor(3)])]) == [
        True, False, False, False, False, False,
    ]  # fmt: skip


def test_a_pool_of_other_forms_is_not_dealt_from():
    base = InputSet([torch.ones(1, 4)])
    source = Source(
        call=Call(), made=[base], pool=pool_of([[torch.ones(1, 5)], [torch.ones(1, 4)]])
    )
    assert stock_of(source, [base]).deck == []


def test_the_batch_changes_its_order_where_whole_numbers_may_not_move():
    rows = torch.arange(40).reshape(8, 5)
    changed = refreshed(rows)
    assert not torch.equal(changed, rows)
    assert torch.equal(changed.sort(0).values, rows)
    assert torch.equal(refreshed(rows, is_rigid=True), rows), "offsets that must rise"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_few_elements_change_places_and_none_is_lost(dtype):
    numbers = torch.arange(600).reshape(3, 4, 50)
    tensor = (numbers * 7 % 11 > 5) if dtype == torch.bool else numbers.to(dtype)
    counts = set()
    for seed in range(20):
        changed = tensor.clone()
        exchange(changed, random.Random(seed))
        counts.add(int((changed != tensor).sum()))
        assert torch.equal(changed.flatten().sort().values, tensor.flatten().sort().values)
        if dtype != torch.float32:
            assert torch.equal(changed.sort(-1).values, tensor.sort(-1).values), "in their rows"
    assert max(counts) <= 6
    assert max(counts) >= 2
    for small in (torch.tensor(3.0), torch.ones(1), torch.ones(0)):
        exchange(small, random.Random(0))


def test_whole_numbers_that_rise_or_fall_in_every_set_stay_where_they_are():
    ids = torch.tensor([[5, 1, 4], [2, 2, 2]])
    offsets, padding = torch.tensor([0, 2, 7]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    floats, flags = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, True])
    sets = [InputSet([ids, offsets, padding, floats, flags])]
    assert movable(sets) == [True, False, False, False, True]
    sorted_ids = InputSet([ids.sort().values, offsets, padding, floats, flags])
    assert movable([sorted_ids, sets[0]])[0], "one set was in order by chance"


def test_a_trial_is_the_first_one_but_for_a_few_elements():
    specs = [
        spec([8, 64], "float32"),
        spec([8, 64], "int64", low=0, high=999),
    ]
    source = Source(call=Call(), specs=specs, moves=[False, True])
    sets = dict(variations(source, generator(), 2**24))
    for tensor, changed in zip(sets["drawn 0"].tensors, sets[EXCHANGED].tensors, strict=True):
        assert 1 <= int((tensor != changed).sum()) <= 6
    only_ids = Source(call=Call(), specs=specs[1:], moves=[True])
    assert EXCHANGED in dict(variations(only_ids, generator(), 2**24))
    for one in (source, only_ids):
        few = dict(variations(one, generator(), 0))
        assert EXCHANGED in few, "a slow reference has it too: it lets whole numbers change places"
        assert len(few) == FEWEST_TRIALS
    fixed_ids = Source(call=Call(), specs=specs[1:], moves=[False])
    assert EXCHANGED not in dict(variations(fixed_ids, generator(), 2**24))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_inputs_may_be_as_large_as_their_type_holds(dtype):
    """Scores are where they are masked. What is put into them has to be a number of the type."""
    scores = torch.randn(8, 64).to(dtype)
    scores[:, ::2] = torch.finfo(dtype).min
    base = InputSet([scores])
    for value in (with_outliers(scores, generator()), *one_alone(base, generator()).tensors):
        assert value.dtype == dtype
        assert bool(value.isfinite().all())
    assert with_nan(scores, generator()).isnan().any()


def test_gradients_of_outputs_are_those_of_the_seed_and_others_for_each_output():
    leaves = [torch.zeros(3, 4), torch.zeros(5, dtype=torch.long), torch.zeros(3, 4)]
    first, again, other = (drawn_like(leaves, seed) for seed in (1, 1, 7))
    assert [tuple(one.shape) for one in first] == [(3, 4), (0,), (3, 4)], "whole numbers have none"
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert len({tuple(one.flatten().tolist()) for one in (first[0], first[2], other[0])}) == 3
    assert bool((first[0].abs() <= 1).all())


def test_precisions_differ_by_their_rounding_alone():
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    found = [drawn_like([torch.zeros(64, dtype=dtype)], 11)[0] for dtype in dtypes]
    assert torch.equal(found[0].double(), found[1])
    assert torch.equal(found[0].bfloat16(), found[2])


def test_a_round_may_have_values_of_its_first_calls_alone_and_get_the_others_later():
    sets = [InputSet([torch.ones(8)]) for _ in range(4)]
    room = Room(sets * 2, [False])
    stock = Stock(
        Source(call=Call(), specs=[spec([8], "float32")], grads=[False]),
        sets,
        random.Random(1),
        generator(),
    )
    case = SimpleNamespace(accelerator=SimpleNamespace(device="cpu"))
    one = new_round(case, room, stock, random.Random(0), num_calls=2)

    def values():
        return [view_of(one.staged, room.layout[place][0]).clone() for place in one.places]

    first = values()
    assert [bool(value.any()) for value in first] == [True, True, False, False]
    fill_in(one, stock, start=2)
    last = values()
    assert all(map(torch.equal, first[:2], last[:2]))
    assert all(bool(value.any()) for value in last)


@pytest.mark.parametrize("size", [8, 2**20], ids=["small", "large"])
def test_gradients_of_outputs_come_with_the_inputs_of_each_round(size):
    outputs = [slot_of(torch.ones(2, size)), slot_of(torch.ones(3, dtype=torch.long))]
    sets = [InputSet([torch.ones(size)]) for _ in range(2)]
    room = Room(sets * 2, [True], cotangents=slots_like(outputs, {}))
    source = Source(call=Call(), specs=[spec([size], "float32")], grads=[True])
    stock = Stock(source, sets, random.Random(1), generator())
    case = SimpleNamespace(accelerator=SimpleNamespace(device="cpu"))
    segment = Segment.create(room.num_bytes)
    seen = []
    for number in range(2):
        one = new_round(case, room, stock, random.Random(number))
        one.write(segment)
        for where in one.places:
            floats, whole = (segment.tensor(slot) for slot in room.cotangents[where])
            assert whole.numel() == 0
            assert bool((floats.abs() <= 1).all()) and floats.unique().numel() > size
            seen.append(float(floats.sum()))
            floats.add_(1)
        assert one.is_as_written(segment), "what is added to a gradient may be written there"
        segment.tensor(room.layout[one.places[0]][0]).add_(1)
        assert not one.is_as_written(segment)
    assert len(set(seen)) == 4
    described = room.describe()[0]
    assert described.cotangents == tuple(room.cotangents[0])
    segment.close()


def test_a_batch_has_sets_of_one_form_and_trials_have_all():
    made = [InputSet([torch.ones(count, 4)]) for count in (3, 5, 3)]
    source = Source(call=Call(), made=made)
    drawn = [source.draw(number, generator()).tensors[0].shape[0] for number in range(4)]
    alike = [source.draw_alike(number, generator()).tensors[0].shape[0] for number in range(4)]
    assert (drawn, alike) == ([3, 5, 3, 3], [3, 3, 3, 3])


def test_tensors_of_other_shapes_are_not_the_same():
    assert not same_bits(torch.ones(3, 4), torch.ones(5, 4))
    assert not same_bits(torch.ones(1, 4), torch.ones(4))


RISING = torch.linspace(-2.0, 3.0, 12).reshape(2, 6)


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        (RISING, ("sorted",)),
        (RISING.flip(-1), ("descending",)),
        (RISING.round(), ("sorted",)),  # two are alike
        (torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]), ()),
        (torch.ones(2, 6), ()),
        (RISING[:, :3], ()),
        (torch.tensor(1.0), ()),
        (torch.cat([torch.ones(1, 6), RISING]), ("sorted",)),  # the first row is all alike
        (torch.stack([RISING, RISING.flip(0), RISING.flip(-1)]), ()),
        (torch.ones(0, 6), ()),
    ],
)
def test_floats_are_in_order_where_all_rows_are(rows, order):
    assert invariants_in([InputSet([rows])]) == [order]
    assert invariants_in([InputSet([rows]), InputSet([-rows])]) == [()]


def test_floats_that_torch_does_not_compare_are_in_no_order():
    assert invariants_in([InputSet([torch.arange(6.0).to(torch.float8_e4m3fn)])]) == [()]


@pytest.mark.parametrize("order", [1, -1])
def test_floats_that_are_in_order_stay_so_in_rounds_and_trials(order):
    base = InputSet([order * RISING, torch.randn(2, 6, generator=generator())])
    source = Source(call=Call(), made=[base], invariants=invariants_in([base]))
    memory = [torch.empty_like(tensor) for tensor in base.tensors]
    stock = stock_of(source, [base])
    stock.renew(0, memory)
    stock.change_few(memory)
    assert not torch.equal(memory[0], base.tensors[0])
    for name, one in [*variations(source, generator(), 2**24), ("round", InputSet(memory))]:
        steps = order * one.tensors[0].diff()
        assert bool((steps >= 0).all()), name
    assert bool((base.tensors[1] == torch.randn(2, 6, generator=generator())).all())


def test_gradients_of_one_trials_second_output_are_not_the_next_trials_first():
    like = torch.zeros(64)
    second = drawn_like([like, like], 7)[1]
    assert not any(torch.equal(second, drawn_like([like], seed)[0]) for seed in range(7, 11))
