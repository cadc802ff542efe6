"""Half and double batch of a call."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.optimize.sizes import other_sizes, tensors_in
from cudal1_ci.records import Call, Constant, Instance, Items, Made, TensorSpec, Workload


def a_call(*args, **kwargs):
    return Workload(
        name="w", provenance="traced", call=Call(args=args, kwargs=kwargs), share=0.5, num_calls=3
    )


def tensor(*shape, **more):
    return TensorSpec(shape=shape, dtype="float32", **more)


def shapes(workload):
    return [one.shape for one in tensors_in(workload.call)]


def test_the_first_dimension_of_most_tensors_is_scaled_wherever_they_are():
    inner = Items(items=(tensor(4, 2), tensor(9)))
    made = Instance(factory="pkg:Box", kwargs={"x": tensor(4, 3)})
    found, why = other_sizes([a_call(tensor(4, 8), inner, Constant(value=4), box=made)])
    assert why is None
    assert [one.name for one in found] == ["w, half batch", "w, double batch"]
    assert shapes(found[0]) == [(2, 8), (2, 2), (9,), (2, 3)]
    assert shapes(found[1]) == [(8, 8), (8, 2), (9,), (8, 3)]
    assert all(one.share is None for one in found)


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (a_call(Constant(value=1)), "no argument has a batch"),
        (a_call(tensor(4, invariants=("offsets",))), "depend on the batch"),
        (msgspec.structs.replace(a_call(), call=Made(function="get_inputs")), "by a function"),
        (a_call(tensor(0, 3)), "empty"),
    ],
)
def test_what_cannot_be_scaled_is_said(workload, why):
    found, said = other_sizes([workload])
    assert not found
    assert why in said


def test_a_batch_of_one_is_only_doubled():
    found, why = other_sizes([a_call(tensor(1, 3))])
    assert [shapes(one) for one in found] == [[(2, 3)]]
    assert "cannot be halved" in why
    _, why = other_sizes(
        [a_call(tensor(1, 3)), msgspec.structs.replace(a_call(tensor(1, 3)), name="v")]
    )
    assert why == "w, v: a batch of 1 cannot be halved"


def test_strides_of_a_transposed_tensor_are_not_kept():
    outer = tensor(4, 8, stride=(16, 1))
    inner = tensor(4, 8, stride=(1, 4))
    (half, _), _ = other_sizes([a_call(outer, inner)])
    assert [one.stride for one in tensors_in(half.call)] == [(16, 1), None]
