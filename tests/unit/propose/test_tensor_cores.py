"""Products in float32 by three in TF32: what the kernels compute, and what is left to torch."""

from __future__ import annotations

import contextlib
import importlib.util

import pytest
import torch

from cudal1_ci.propose.recorded import tensor_cores
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.tensor_cores import HELPERS, RULES
from tests import triton_on_torch
from tests.unit.propose.recorded.rig import proposed
from tests.unit.propose.recorded.test_forms import module as model


@pytest.fixture
def file():
    """The names of a file that has the functions."""
    with triton_on_torch.installed():
        names: dict = {}
        header = "import torch\nimport triton\nimport triton.language as tl\n"
        exec(compile(header + HELPERS, "<program>", "exec"), names)
        yield names


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def error(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    return (found.double() - a.double() @ b.double()).abs().max().item()


@pytest.mark.parametrize("x", [randn(70, 33), randn(33, 70).t(), randn(64, 256)[:, ::2]])
def test_a_matrix_is_the_sum_of_its_parts_and_zeros_follow(file, x):
    (high,), (low,) = file["fp32_split"](x[None])
    rows, cols = x.shape
    assert torch.equal((high + low)[:rows, :cols], x)
    assert not (high[:rows, :cols].view(torch.int32) & 8191).any()
    assert (low[:rows, :cols].abs() <= x.abs() * 2**-10).all()
    for part in (high, low):
        assert part.shape[0] % 128 == part.shape[1] % 32 == 0
        assert not part[rows:].any()
        assert not part[:, cols:].any()


@pytest.mark.parametrize(("m", "k", "n"), [(130, 300, 70), (128, 640, 256), (1, 1, 1)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_product_is_as_exact_as_one_in_float32(file, m, k, n, is_turned):
    a, b = (randn(k, m).t(), randn(n, k).t()) if is_turned else (randn(m, k), randn(k, n))
    (found,) = file["fp32_product"](a[None], b[None])
    assert found.shape == (m, n)
    assert error(found, a, b) <= max(2 * error(a @ b, a, b), 1e-6)
    in_tf32 = triton_on_torch.dot(a, b, input_precision="tf32")
    assert m == 1 or error(found, a, b) < error(in_tf32, a, b) / 50


@pytest.mark.parametrize(
    ("k", "of_one_sum", "of_torch"),
    [
        (64, 4.4e-5, 1.8e-5),
        (1024, 1.2e-3, 1.8e-4),
        pytest.param(4096, 1.1e-2, 8.5e-4, marks=pytest.mark.slow),
    ],
)
def test_short_sums_on_tensor_cores_are_more_exact_than_long_ones(file, k, of_one_sum, of_torch):
    """Of one sum on tensor cores, as the kernel made it once, an H200 had the errors that are told
    here, and torch those of float32. What stands for tensor cores here has them too."""
    a, b = randn(128, k), randn(k, 128)
    (a_high, a_low), (b_high, b_low) = (
        [part[0] for part in file["fp32_split"](one[None])] for one in (a, b.t())
    )
    total = torch.zeros(128, 128)
    for part in (slice(i, i + 32) for i in range(0, k, 32)):
        for x, y in ((a_low, b_high), (a_high, b_low), (a_high, b_high)):
            total = triton_on_torch.dot(x[:, part], y[:, part].T, total, input_precision="tf32")
    assert of_one_sum / 2 < error(total, a, b) < of_one_sum * 2
    assert error(file["fp32_product"](a[None], b[None])[0], a, b) < of_torch


@pytest.mark.parametrize("is_turned", [False, True])
def test_each_of_several_products_is(file, is_turned):
    a, b = (
        (randn(3, 40, 130).mT, randn(3, 70, 40).mT)
        if is_turned
        else (randn(3, 130, 40), randn(3, 40, 70))
    )
    found = file["fp32_product"](a, b)
    for one, x, y in zip(found, a, b, strict=True):
        assert error(one, x, y) <= 4 * error(x @ y, x, y)
    same = a[:1].expand(3, -1, -1)
    assert torch.equal(file["fp32_product"](same, b)[1], file["fp32_product"](same[:1], b[1:2])[0])


class OnGPU(torch.Tensor):
    is_cuda = True


def on_gpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Zeros that take no memory."""
    return torch.zeros((), dtype=dtype).expand(shape).as_subclass(OnGPU)


def test_large_products_are_made_on_tensor_cores(file, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    asked = []

    def product(a, b):
        asked.append((a.shape, b.shape))
        return on_gpu(*a.shape[:2], b.shape[2])

    file["fp32_product"] = product
    with torch.no_grad():
        found = file["fp32_matmul"](on_gpu(2, 4, 512, 1024), on_gpu(1024, 1024))
        file["fp32_matmul"](on_gpu(2048, 2048), on_gpu(2048, 2048))
    assert asked == [((1, 4096, 1024), (1, 1024, 1024)), ((1, 2048, 2048), (1, 2048, 2048))]
    assert found.shape == (2, 4, 512, 1024)
    with torch.no_grad():
        found = file["fp32_linear"](on_gpu(4, 1024, 2048), on_gpu(1024, 2048), torch.ones(1024))
    assert asked[2:] == [((1, 4096, 2048), (1, 2048, 1024))]
    assert found.shape == (4, 1024, 1024) and bool((found == 1).all())
    with torch.no_grad():
        found = file["fp32_matmul"](on_gpu(4, 8, 512, 1024), on_gpu(4, 8, 1024, 512))
    assert asked[3:] == [((32, 512, 1024), (32, 1024, 512))]
    assert found.shape == (4, 8, 512, 512)


@pytest.mark.parametrize(
    "left_alone",
    [
        *("small", "thin", "few blocks", "half", "batches", "other batches", "small each"),
        *("gradients", "tf32", "autocast", "cpu"),
    ],
)
def test_other_products_are_torchs(file, monkeypatch, left_alone):
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    file["fp32_product"] = lambda a, b: pytest.fail("it was made on tensor cores")
    a, b = {
        "small": lambda: (on_gpu(4096, 1023), on_gpu(1023, 1024)),
        "thin": lambda: (on_gpu(16, 32768), on_gpu(32768, 32768)),
        "few blocks": lambda: (on_gpu(1024, 8192), on_gpu(8192, 1024)),
        "half": lambda: (on_gpu(2048, 2048, dtype=torch.half),) * 2,
        "batches": lambda: (on_gpu(2048, 2048), on_gpu(2, 2048, 2048)),
        "other batches": lambda: (on_gpu(2, 2048, 2048), on_gpu(1, 2048, 2048)),
        "small each": lambda: (on_gpu(4096, 64, 512), on_gpu(4096, 512, 64)),
        "cpu": lambda: (torch.zeros(2048, 2048),) * 2,
    }.get(left_alone, lambda: (on_gpu(2048, 2048),) * 2)()
    if left_alone == "tf32":
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    if left_alone == "autocast":
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda: True)
    monkeypatch.setattr(torch, "matmul", lambda a, b: (a, b))
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, weight, bias: (x, weight, bias))
    with torch.set_grad_enabled(left_alone == "gradients"):
        assert file["fp32_matmul"](a, b) == (a, b)
        if b.dim() == 2:
            weight = b.t()
            assert file["fp32_linear"](a, weight, "bias") == (a, weight, "bias")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num", "m", "k", "n"),
    [((), 2048, 4096, 2048), ((), 8205, 2949, 1011), ((4, 8), 515, 1030, 700)],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_on_a_gpu_products_are_as_exact_as_in_float32(tmp_path, num, m, k, n, is_turned):
    path = tmp_path / "file.py"  # Triton reads a kernel's text from its file
    path.write_text("import torch\nimport triton\nimport triton.language as tl\n" + HELPERS)
    spec = importlib.util.spec_from_file_location("file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = []
    product = module.fp32_product
    module.fp32_product = lambda a, b: made.append(1) or product(a, b)
    a, b = (one.cuda() for one in (randn(*num, m, k), randn(*num, k, n)))
    if is_turned:
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    with torch.no_grad():
        found = module.fp32_matmul(a, b)
    assert made
    assert error(found, a, b) <= 4 * error(a @ b, a, b)


ROWS = "[torch.randn(256, 256)]"


def with_inputs(init: str, forward: str, inputs: str) -> str:
    return model(init, forward) + f"\n\ndef get_inputs():\n    return {inputs}\n"


@pytest.mark.parametrize(("rows", "is_large"), [(2048, True), (2047, False)])
def test_a_product_is_large_from_a_number_of_multiplications_on(
    tmp_path, monkeypatch, rows, is_large
):
    monkeypatch.setattr(Call, "has_triton", True)
    text = with_inputs("pass", "return x @ x.t()", f"[torch.randn({rows}, 1024)]")
    assert bool(proposed(tmp_path, text, RULES)) is is_large


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "expected"),
    [
        ("pass", "return F.relu(x @ x.t())", ROWS, "return F.relu(fp32_matmul(x, x.t()))"),
        ("pass", "return torch.mm(x, x)", ROWS, "return fp32_matmul(x, x)"),
        ("self.fc = nn.Linear(256, 256)", "x = self.fc(x)\nreturn -x * 2", ROWS,
         "x = fp32_linear(x, self.fc.weight, self.fc.bias)"),
        ("self.fc = nn.Linear(256, 256, bias=False)", "return self.fc(x)", ROWS, None),
        ("pass", "return torch.mm(x, x)", "[torch.randn(64, 64)]", None),
        ("pass", "return torch.mm(x, x)", ROWS.replace(")]", ").double()]"), None),
    ],
)  # fmt: skip
def test_large_products_are_found_on_a_gpu(tmp_path, monkeypatch, init, forward, inputs, expected):
    monkeypatch.setattr(tensor_cores, "MUCH", 2**24)
    text = with_inputs(init, forward, inputs)
    assert proposed(tmp_path, text, RULES, kind="cuda") == {}, "the call ran on a CPU"
    monkeypatch.setattr(Call, "has_triton", True)
    new = proposed(tmp_path, text, RULES).get("fp32_tensor_cores")
    assert (new is None) == (expected is None)
    if new is not None and expected is not None:
        assert expected in new
        assert new.count("def fp32_matmul") == 1
        assert "import triton\nimport triton.language as tl\n" in new
    assert proposed(tmp_path, text, RULES, mode="train") == {}
    theirs = text.replace("\n\nclass", "\n\ndef fp32_matmul(a, b):\n    return a\n\n\nclass", 1)
    assert proposed(tmp_path, theirs, RULES) == {}
