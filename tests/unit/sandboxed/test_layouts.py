"""Tensors that are not plain travel as plain parts, and are compared in a plain form."""

from __future__ import annotations

import warnings

import pytest
import torch

from cudal1_ci.sandboxed.memory.layouts import comparable, is_ordinary, layout_of, parts_of
from cudal1_ci.sandboxed.memory.segment import dtype_of, slot_of
from cudal1_ci.sandboxed.runner import module_state
from cudal1_ci.sandboxed.runner.arguments import flatten, pickle_call, unpickle

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    MATRIX = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    SPARSE = {
        "coo": MATRIX.to_sparse(),
        "twice": torch.sparse_coo_tensor(torch.tensor([[1, 1], [0, 0]]), torch.ones(2), (2, 3)),
        "csr": MATRIX.to_sparse_csr(),
        "csc": MATRIX.to_sparse_csc(),
        "bsr": MATRIX.repeat(2, 2).to_sparse_bsr((2, 3)),
        "hybrid": torch.ones(4, 2).to_sparse(1),
    }
    ROWS = torch.randn(4, 6)
    QUANTIZED = {
        "rows": torch.quantize_per_tensor(ROWS, 0.05, 3, torch.quint8),
        "columns": torch.quantize_per_tensor(ROWS.t(), 0.05, 0, torch.qint8),
        "int32": torch.quantize_per_tensor(ROWS, 0.01, 0, torch.qint32),
        "channels": torch.quantize_per_channel(
            ROWS, torch.linspace(0.1, 0.4, 4), torch.zeros(4).long(), 0, torch.qint8
        ),
        "float parameters": torch.quantize_per_channel(
            ROWS, torch.linspace(0.1, 0.4, 4), torch.full((4,), 0.5), 0, torch.quint8
        ),
    }
    COMPONENTS = [torch.ones(2, 3), torch.zeros(4, 3)]
    NESTED = {
        "nested": torch.nested.nested_tensor(COMPONENTS),
        "jagged": torch.nested.nested_tensor(COMPONENTS, layout=torch.jagged),
    }


def carried(value):
    """What a program gets of an argument: its parts in other memory, put together again."""
    data, tensors, structure = pickle_call([value])
    slots = [tensor.clone() for tensor in tensors]
    (found,), _ = unpickle(data, slots)
    return found, slots, structure


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_input_arrives_over_the_memory_of_its_parts(name):
    given = SPARSE[name]
    found, slots, structure = carried(given)
    assert found.layout == given.layout
    assert torch.equal(found.to_dense(), given.to_dense())
    assert structure == list(range(len(slots) - 1))
    slots[-1].mul_(2)
    assert torch.equal(found.to_dense(), given.to_dense() * 2)


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_input_arrives_over_the_memory_of_its_whole_numbers(name):
    given = QUANTIZED[name]
    found, (numbers,), structure = carried(given)
    assert structure == []
    assert layout_of(found) == layout_of(given)
    assert torch.equal(found.dequantize(), given.dequantize())
    numbers.zero_()
    assert not found.int_repr().any()


@pytest.mark.parametrize("name", NESTED)
def test_a_nested_input_arrives_with_its_components(name):
    found, slots, _ = carried(NESTED[name])
    assert all(torch.equal(*pair) for pair in zip(found.unbind(), COMPONENTS, strict=True))
    slots[-1].fill_(5)
    assert [float(one.mean()) for one in found.unbind()] == [5, 5]


def test_a_sparse_output_is_compared_whatever_the_order_of_its_entries():
    one, other = SPARSE["twice"], SPARSE["twice"].coalesce()
    assert not torch.equal(one._values(), other._values())
    (ours, said), (theirs, also_said) = flatten(one), flatten(other)
    assert said == also_said == "sparse_coo*"
    assert torch.equal(ours[0], theirs[0])
    assert flatten(MATRIX)[1] != said


def test_a_quantized_output_is_whole_numbers_scales_and_zero_points():
    leaves, structure = flatten({"q": QUANTIZED["rows"]})
    assert structure == "dict(q:quint8***,)"
    assert leaves[0].data_ptr() == QUANTIZED["rows"].data_ptr()
    assert [one.tolist() for one in leaves[1:]] == [[0.05], [3]]
    leaves, structure = flatten(QUANTIZED["channels"])
    assert structure == "qint8 along 0***"
    assert leaves[1].shape == (4,)


def test_a_nested_output_is_its_components():
    for one in NESTED.values():
        leaves, structure = flatten(one)
        assert structure == "nested**"
        assert [leaf.shape for leaf in leaves] == [(2, 3), (4, 3)]


def test_a_sparse_output_too_large_to_be_dense_says_what_to_do():
    large = torch.sparse_coo_tensor(torch.zeros(2, 1).long(), torch.ones(1), (2**20, 2**20))
    with pytest.raises(ValueError, match="a workload with smaller inputs"):
        comparable(large)


def test_what_cannot_be_carried_is_named_before_it_ends_a_process():
    with pytest.raises(ValueError, match="qint8"):
        dtype_of("qint8")
    with pytest.raises(ValueError, match="int4"):
        slot_of(torch.empty(2, dtype=torch.int4))
    assert dtype_of("int64") is torch.int64
    assert dtype_of("uint16") is torch.uint16


def test_a_sparse_or_quantized_buffer_is_part_of_the_state_in_parts():
    module = torch.nn.Module()
    module.register_buffer("adjacency", MATRIX.to_sparse_csr())
    module.register_buffer("table", QUANTIZED["rows"].clone())
    module.register_buffer("plain", ROWS)
    state = module_state.in_parts(module_state.plain_state(module))
    assert list(state) == [
        "adjacency.crow_indices", "adjacency.col_indices", "adjacency.values", "table.values",
        "plain",
    ]  # fmt: skip
    state["adjacency.values"].zero_()
    assert not module.adjacency.to_dense().any()
    assert all(map(is_ordinary, state.values()))
    assert parts_of(module.table)["values"].dtype == torch.uint8


class Counting(torch.nn.Linear):
    def _load_from_state_dict(self, *args):
        super()._load_from_state_dict(*args)


def hooked():
    module = torch.nn.Linear(2, 2)
    module.register_load_state_dict_post_hook(lambda module, keys: None)
    return torch.nn.Sequential(module)


@pytest.mark.parametrize(
    ("module", "has_own"),
    [
        (torch.nn.BatchNorm1d(2), False),
        (torch.nn.MultiheadAttention(4, 2), False),
        (hooked(), True),
        (torch.nn.Sequential(Counting(2, 2)), True),
    ],
)
def test_a_checkpoint_is_loaded_by_the_module_where_code_of_its_own_runs_then(module, has_own):
    assert module_state.has_own_loading(module) is has_own


def test_a_module_may_keep_what_it_gets_of_a_checkpoint():
    module = torch.nn.Linear(2, 2)
    kept = []
    module.register_load_state_dict_pre_hook(lambda *args: kept.append(args[1]["weight"]))
    given = torch.ones(2, 2)
    module_state.load_checkpoint(module, {"weight": given})
    given.zero_()
    assert torch.equal(kept[0], torch.ones(2, 2))
    assert torch.equal(module.weight, torch.ones(2, 2))
