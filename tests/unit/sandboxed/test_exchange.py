"""What passes between processes: segments, messages, arguments and outputs."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from cudal1_ci.sandboxed.memory.segment import Segment, contiguous_stride, place, slot_of, span
from cudal1_ci.sandboxed.runner.arguments import (
    build_call,
    flatten,
    pickle_call,
    tensor_specs,
    unpickle,
)
from cudal1_ci.sandboxed.verifier.inputs import InputSet, Room, Source, draw, scaled
from cudal1_ci.sandboxed.verifier.variations import ON_NAN, another_batch, variations
from cudal1_ci.sandboxed.wire.arguments import Call, Constant, Instance, Items, Mapping, Symbol
from cudal1_ci.sandboxed.wire.channel import Channel, ChannelClosed, ChannelTimeout
from cudal1_ci.sandboxed.wire.codec import ProtocolError, decode, encode
from cudal1_ci.sandboxed.wire.programs import TextProgram
from cudal1_ci.sandboxed.wire.runner import REQUEST, Build, GetReady, Prepare
from cudal1_ci.sandboxed.wire.tensors import Slot
from tests.unit.sandboxed.messages import spec

Point = namedtuple("Point", "x y")


@dataclass
class Result:
    logits: object
    loss: object = None


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- segments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(3, dtype=torch.int64),
        torch.tensor([True, False]),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(0, 4),
        torch.ones(1, 4).expand(3, 4),
        torch.arange(20.0)[::2],
    ],
)
def test_a_tensor_comes_out_of_a_segment_as_it_went_in(tensor):
    slots, size = place([slot_of(tensor), slot_of(tensor)])
    segment = Segment.create(size)
    for slot in slots:
        segment.tensor(slot).copy_(tensor)
    for slot in slots:
        found = segment.tensor(slot)
        assert torch.equal(found, tensor)
        assert found.dtype == tensor.dtype
    segment.close()


def test_strides_are_kept_where_the_tensor_does_not_overlap_itself():
    strided = torch.arange(12.0).reshape(3, 4).t()
    assert slot_of(strided).stride == (1, 4)
    assert slot_of(torch.ones(1, 4).expand(3, 4)).stride == (4, 1)
    assert contiguous_stride([2, 0, 3]) == (3, 3, 1)
    assert span([2, 3], [3, 1]) == 6


@pytest.mark.parametrize("offset", [-64, 4096 - 8, 2**40])
def test_a_slot_outside_of_its_segment_is_refused(offset):
    segment = Segment.create(4096)
    slot = Slot(dtype="float32", shape=(4,), stride=(1,), offset=offset)
    with pytest.raises(ValueError, match="outside"):
        segment.tensor(slot)
    segment.close()


# --- messages ------------------------------------------------------------------------------------


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    yield Channel(one), Channel(other)
    one.close()
    other.close()


def test_messages_and_descriptors_arrive_whole(ends):
    one, other = ends
    large = Build(program=TextProgram(source="x" * 3_000_000, entry="Model"))
    sender = threading.Thread(target=one.send, args=(large,))
    sender.start()
    assert other.receive(REQUEST, 10)[0] == large
    sender.join()
    read_end, write_end = os.pipe()
    one.send(GetReady(), [write_end])
    message, (received,) = other.receive(REQUEST, 5)
    assert message == GetReady()
    os.write(received, b"hello")
    assert os.read(read_end, 5) == b"hello"
    for fd in (read_end, write_end, received):
        os.close(fd)


@pytest.mark.parametrize(
    ("raw", "error", "said"),
    [
        (struct.pack("!Q", 2**60), ChannelClosed, "was announced"),
        (struct.pack("!Q", 4) + b"\xff\xff\xff\xff", ProtocolError, "expected JSON"),
        (struct.pack("!Q", 2) + b"[]", ProtocolError, r"got \[\]"),
        (b"\x00\x00", ChannelClosed, "ended"),
    ],
)
def test_what_is_no_message_is_refused(ends, raw, error, said):
    one, other = ends
    one.end.sendall(raw)
    one.end.close()
    with pytest.raises(error, match=said):
        other.receive(REQUEST, 5)


def test_descriptors_of_what_is_no_message_are_closed(ends):
    one, other = ends
    before = len([*Path("/proc/self/fd").iterdir()])
    one.send_body(b"{}", [0, 0])
    with pytest.raises(ProtocolError):
        other.receive(REQUEST, 5)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_peer_that_says_half_of_something_is_waited_for_no_longer_than_was_said(ends):
    one, other = ends
    one.end.sendall(struct.pack("!Q", 100) + b"{")
    with pytest.raises(ChannelTimeout):
        other.receive(REQUEST, 0.2)


# --- arguments and outputs -------------------------------------------------------------------


@pytest.mark.parametrize("spin_s", [0.001, 20.0])
def test_what_is_looked_for_without_a_pause_arrives_as_well(ends, spin_s):
    one, other = ends
    reading, writing = os.pipe()
    threading.Timer(0.2, one.send, (GetReady(), [reading])).start()
    body, (descriptor,) = other.receive_body(10, spin_s=spin_s)
    assert body == encode(GetReady())
    os.write(writing, b"x")
    assert os.read(descriptor, 1) == b"x"
    for fd in (reading, writing, descriptor):
        os.close(fd)


def test_a_peer_that_ends_is_noticed_without_a_pause(ends):
    one, other = ends
    threading.Timer(0.2, one.close).start()
    with pytest.raises(ChannelClosed):
        other.receive_body(10, spin_s=20.0)


def test_a_call_is_built_from_its_specs():
    tensor = spec([2])
    options = Mapping(
        items=((Constant(value="a"), Constant(value=1)),), container="collections:OrderedDict"
    )
    call = Call(
        args=(Items(items=(tensor, tensor), container="tuple"), Symbol(path="torch:float16")),
        kwargs={
            "options": options,
            "slice": Instance(factory="builtins:slice", args=(Constant(value=3),)),
        },
    )
    rest, specs = tensor_specs(call)
    assert specs == [tensor, tensor]
    slots = [torch.zeros(2), torch.ones(2)]
    args, kwargs = build_call(rest, slots)
    assert args[0][1] is slots[1]
    assert args[1] is torch.float16
    assert kwargs == {"options": OrderedDict(a=1), "slice": slice(3)}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([torch.ones(2), 3], ([0, 3], {})),
        ((torch.ones(2),), ([0], {})),
        ({"x": torch.ones(2), "n": 3}, ([], {"x": 0, "n": 3})),
        (torch.ones(2), ([0], {})),
    ],
)
def test_what_users_make_travels_without_its_tensors(made, expected):
    data, tensors, structure = pickle_call(made)
    assert len(tensors) == 1 and structure == []
    assert unpickle(data, [0]) == expected


def test_a_generator_travels_with_its_state_and_without_a_tensor():
    given = torch.Generator().manual_seed(5)
    torch.rand(3, generator=given)
    data, tensors, structure = pickle_call([given, torch.ones(2)])
    assert len(tensors) == 1 and structure == []
    [got, _], _ = unpickle(data, [tensors[0].to("meta")])
    assert torch.equal(torch.rand(4, generator=got), torch.rand(4, generator=given))


def test_outputs_of_any_nesting_are_leaves_and_a_structure():
    a, b = torch.ones(2), torch.zeros(3)
    leaves, structure = flatten({"out": (a, [b, None]), "n": 3, "loss": Result(a, "mean")})
    assert [id(leaf) for leaf in leaves] == [id(a), id(b), id(a)]
    assert "3" in structure
    assert "'mean'" in structure


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((torch.ones(2),), [torch.ones(2)]),
        (Point(torch.ones(2), 1), (torch.ones(2), 1)),
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}),
        ({"a": torch.ones(2)}, OrderedDict(a=torch.ones(2))),
        ((torch.ones(2), 1), (torch.ones(2), 2)),
        (Result(torch.ones(2)), {"logits": torch.ones(2), "loss": None}),
        (torch.ones(2), (torch.ones(2),)),
    ],
)
def test_outputs_of_another_type_or_with_other_plain_values_differ(one, other):
    assert flatten(one)[1] != flatten(other)[1]


def test_a_cycle_ends():
    cycle: list[object] = [torch.ones(1)]
    cycle.append(cycle)
    assert "..." in flatten(cycle)[1]


# --- inputs --------------------------------------------------------------------------------------


def test_drawn_values_follow_dtype_range_and_strides():
    ints = draw(spec([4000], "int64", low=3, high=9), generator())
    assert (int(ints.min()), int(ints.max())) == (3, 9)
    positive = draw(spec([4000], "float32", low=0.0, high=2.0), generator())
    assert 0 <= float(positive.min()) < 0.1
    assert 1.9 < float(positive.max()) <= 2
    wide = draw(spec([4000], "float32", low=-60.0, high=60.0), generator())
    assert 15 < float(wide.std()) < 25
    half = draw(spec([64], "bool"), generator())
    assert 10 < int(half.sum()) < 54
    strided = draw(spec([3, 4], "float16", stride=(1, 3)), generator())
    assert strided.stride() == (1, 3)


def test_equal_seeds_draw_equal_values_and_others_do_not():
    one = spec([16], "float32")
    assert torch.equal(draw(one, generator(1)), draw(one, generator(1)))
    assert not torch.equal(draw(one, generator(1)), draw(one, generator(2)))


def test_variations_reach_other_scales_signs_and_zero():
    source = Source(call=Call(), specs=[spec([32], "float32")])
    sets = {name: one.tensors[0] for name, one in variations(source, generator(), 2**20)}
    base = sets["drawn 0"]
    assert not torch.equal(base, sets["drawn 1"])
    assert torch.equal(sets["large"], base * 8)
    assert bool((sets["zeros"] == 0).all())
    assert bool((sets["small and negative"] == base * -0.01).all())


def test_scaling_leaves_integers_alone():
    source = Source(call=Call(), specs=[spec([8], "int64", high=5)])
    one = source.draw(0, generator())
    assert torch.equal(scaled(one, 3.0).tensors[0], one.tensors[0])


def test_a_room_notices_what_was_written_to():
    source = Source(call=Call(), specs=[spec([8], "float32")] * 2)
    sets = [source.draw(i, generator(i)) for i in range(3)]
    room = Room(sets, [False, False])
    segment = Segment.create(room.num_bytes)
    room.write(segment, sets)
    assert room.changed(segment, sets) == []
    segment.tensor(room.layout[1][0])[3] += 1
    assert room.changed(segment, sets) == [(1, 0)]
    segment.close()


def test_room_descriptions_cross_the_wall():
    source = Source(call=Call(), specs=[spec([8])])
    room = Room([source.draw(0, generator())], [True], "float64")
    sent = Prepare(sets=room.describe(), call=Call())
    received = decode(REQUEST, encode(sent))
    assert received == sent
    assert received.sets[0].slots[0].dtype == "float64"
    assert received.sets[0].grads == (True,)


def test_fewer_variations_are_made_where_there_is_less_room_for_them():
    source = Source(call=Call(), specs=[spec([256], "float32")])
    assert len(variations(source, generator(), 0)) == 3
    assert len(variations(source, generator(), 5 * 1100)) == 5
    names = [name for name, _ in variations(source, generator(), 2**20)]
    assert names[:4] == ["drawn 0", "drawn 1", "shifted", "exchanged"]
    assert len(names) == 16
    training = [name for name, _ in variations(source, generator(), 2**20, is_training=True)]
    assert training == [name for name in names if name not in ("huge", "outliers", "one alone")]
    with_nan = [name for name, _ in variations(source, generator(), 2**20, has_nan=True)]
    assert set(with_nan) - set(names) == {"not a number"}


def test_odd_elements_leave_the_layout_as_it_is():
    source = Source(call=Call(), specs=[spec([6, 5], "float32", stride=(1, 6))])
    for name, one in variations(source, generator(), 2**20, has_nan=True):
        if name in ("outliers", "one alone", "not a number"):
            assert one.tensors[0].stride() == (1, 6), name


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("x = torch.nan_to_num(x)", True),
        ("return x.nanmean()", True),
        ("torch.where(torch.isnan(x), 0, x)", True),
        ("float('nan')", True),
        ("x[torch.isfinite(x)]", True),
        ("self.dominant = nanny(x)", False),
        ("return self.resonance(x)", False),
    ],
)
def test_a_reference_that_does_something_about_nan_is_told_by_whole_words(text, is_named):
    assert (ON_NAN.search(text) is not None) == is_named


def test_odd_elements_are_few_and_anywhere():
    source = Source(call=Call(), specs=[spec([64, 64], "float32")])
    places = set()
    for seed in range(20):
        own = torch.Generator().manual_seed(seed)
        sets = dict(variations(source, own, 2**20, has_nan=True))
        (base,), (odd,), (none,) = (
            sets[name].tensors for name in ("drawn 0", "outliers", "not a number")
        )
        assert 1 <= int((odd != base).sum()) <= 3
        assert float(odd.abs().max()) == pytest.approx(300 * float(base.square().mean().sqrt()))
        assert 1 <= int(none.isnan().sum()) <= 3
        places |= set((odd != base).nonzero()[:, 0].tolist())
    assert len(places) > 20, "rows that a look at the first one does not see"


def test_one_element_alone_is_anywhere_and_in_the_same_place_of_tensors_of_a_shape():
    specs = [spec(shape, "float32") for shape in ([64, 64], [64, 64], [7], [])]
    source = Source(call=Call(), specs=specs)
    rows = set()
    for seed in range(20):
        own = torch.Generator().manual_seed(seed)
        sets = dict(variations(source, own, 2**20))
        alone = sets["one alone"].tensors
        assert [one.count_nonzero().item() for one in alone] == [1] * 4
        assert torch.equal(alone[0].nonzero(), alone[1].nonzero())
        assert alone[0].sum() != alone[1].sum()
        size = float(sets["drawn 0"].tensors[0].square().mean().sqrt())
        assert 99 * size < float(alone[0].abs().max()) < 201 * size
        rows |= set(alone[0].nonzero()[:, 0].tolist())
    assert len(rows) > 10


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_variations_keep_shape_dtype_and_what_is_not_a_float(dtype):
    source = Source(call=Call(), specs=[spec([6, 5], dtype, low=0, high=1)])
    sets = dict(variations(source, generator(), 2**20))
    for name, one in sets.items():
        (tensor,) = one.tensors
        assert tensor.shape == (6, 5), name
        assert str(tensor.dtype) == f"torch.{dtype}", name
    if "tail only" in sets:
        tail = sets["tail only"].tensors[0]
        assert tail[:, :4].count_nonzero() == 0
        assert torch.equal(tail[:, 4], sets["drawn 0"].tensors[0][:, 4])
        assert set(sets["zeros and ones"].tensors[0].flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [([[4, 3], [4]], 3), ([[32, 3]], 17), ([[1, 3]], None), ([[4, 3], [5]], None), ([[]], None)],
)
def test_another_batch_has_fewer_rows_of_all_tensors(shapes, rows):
    found = another_batch(InputSet([torch.zeros(shape) for shape in shapes]))
    if rows is None:
        assert found is None
    else:
        assert [tensor.shape[0] for tensor in found.tensors] == [rows] * len(shapes)
