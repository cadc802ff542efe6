"""What a call asks of a device: counted by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from cudal1_ci.sandboxed.runner.flops import demand_of, num_bytes
from cudal1_ci.sandboxed.wire.verdicts import Demand

F32 = 4


def test_a_linear_layer():
    x, module = torch.randn(8, 16), torch.nn.Linear(16, 32)
    with torch.no_grad():
        found = demand_of(lambda: module(x), [x, *module.parameters()])
    assert found == Demand(
        num_bytes=F32 * (8 * 16 + 16 * 32 + 32 + 8 * 32),
        dtype="float32",
        product_flops=2 * 8 * 16 * 32,
        convolution_flops=0,
    )


def test_a_convolution_and_its_gradients():
    x, module = torch.randn(2, 3, 8, 8), torch.nn.Conv2d(3, 4, 3)

    def call():
        output = module(x)
        output.sum().backward()
        return output

    forward = 2 * 2 * 4 * 6 * 6 * 3 * 3 * 3
    found = demand_of(call, [x, *module.parameters()])
    assert found.convolution_flops == 2 * forward, "x needs no gradient"
    assert found.product_flops == 0


COUNTS = """
import sys
import torch
{first}
from cudal1_ci.sandboxed.runner.flops import demand_of

module, x = torch.nn.Linear(16, 32), torch.randn(8, 16)
found = demand_of(lambda: module(x), [x])
print(found.product_flops, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(("first", "is_there"), [("", False), ("import torch._dynamo", True)])
def test_the_compiler_is_not_imported_to_count(first, is_there):
    told = subprocess.run(
        [sys.executable, "-c", COUNTS.format(first=first)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stdout.split() == [str(2 * 8 * 16 * 32), str(is_there)]


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (lambda x: [x, x.view(-1)], 64 * F32),
        (lambda x: [x[:2]], 16 * F32),
        (lambda x: [x[:1].expand(8, 8)], 8 * F32),
        (lambda x: [x, x.half()], 64 * F32 + 64 * 2),
        (lambda x: [x[:0]], 0),
    ],
)
def test_what_lies_at_one_place_is_counted_once(tensors, expected):
    assert num_bytes(tensors(torch.randn(8, 8))) == expected


def test_what_has_no_floating_numbers_has_no_dtype():
    x = torch.arange(4)
    assert demand_of(lambda: x + 1, [x]).dtype == "none"
