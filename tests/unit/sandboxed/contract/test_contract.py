"""What a contract says of small programs, each with one fault, by real runners."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace

import pytest

from cudal1_ci.sandboxed.memory.accelerators import accelerator
from cudal1_ci.sandboxed.verifier.cases import Limits
from cudal1_ci.sandboxed.verifier.contract import examine_contract
from cudal1_ci.sandboxed.verifier.reference import make_case
from cudal1_ci.sandboxed.wire.arguments import Made
from cudal1_ci.sandboxed.wire.programs import Problem, Workload
from tests.unit.sandboxed.messages import text

pytestmark = pytest.mark.starts_verifier
LIMITS = Limits(30.0, 10.0)
BUDGET_S = 120.0
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
SCALED = """
class Model(nn.Module):
    def __init__(self, dim, slope=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))
        self.slope = slope
    def forward(self, x, factor):
        return F.leaky_relu(x * self.weight, self.slope) * factor
def get_inputs():
    return [torch.randn(6, 4, 8), 2.0]
def get_init_inputs():
    return [8]
"""


def program(source):
    return text(HEAD + textwrap.dedent(source))


@pytest.fixture(scope="module")
def learned(template):
    """Cases by the text of the reference: each is learned once."""
    known = {}

    def of(reference):
        if reference not in known:
            call, init = Made(function="get_inputs"), None
            if "get_init_inputs" in reference:
                init = Made(function="get_init_inputs")
            workload = Workload(name="default", init=init, call=call)
            problem = Problem(reference=program(reference), workloads=(workload,))
            known[reference] = make_case(template, accelerator("cpu"), problem, workload, LIMITS, 0)
        return known[reference]

    return of


@pytest.fixture
def lines(template, learned):
    """Examine a candidate: the whole contract, or the lines whose aspects begin with some words."""

    def of(reference, candidate, *aspects):
        case = learned(reference)
        if case.contract is None:  # without time it only says which lines there are
            examine_contract(case, template, program(reference), LIMITS, 0.0)
        whole = case.contract
        numbers = [at for at, one in enumerate(whole.lines) if one.aspect.startswith(aspects or "")]
        known = {at: whole.learned[n] for at, n in enumerate(numbers) if n in whole.learned}
        some = replace(whole, lines=[whole.lines[n] for n in numbers], learned=known)
        case.contract = some
        checks, _ = examine_contract(case, template, program(candidate), LIMITS, BUDGET_S)
        whole.learned |= {numbers[at]: one for at, one in some.learned.items()}
        case.contract = replace(whole, usual=some.usual)
        return {check.aspect: check for check in checks}

    return of


def broken(found):
    return {aspect for aspect, check in found.items() if check.result == "broken"}


def test_the_reference_keeps_its_own_contract(lines):
    found = lines(SCALED, SCALED)
    assert broken(found) == set()
    held = [check for check in found.values() if check.result == "held"]
    assert len(held) >= 25
    assert found["dim of the constructor changed"].result == "not_applicable"
    assert "the reference refuses it" in found["dim of the constructor changed"].detail
    assert found["device"].result == "not_tried"


DIAGONAL = """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(dim))
    def forward(self, x):
        return torch.diag(self.gain) @ x
def get_inputs():
    return [torch.randn(12, 8)]
def get_init_inputs():
    return [12]
"""
SUMMED = """
class Model(nn.Module):
    def forward(self, x):
        return torch.tril(torch.ones(x.shape[0], x.shape[0], dtype=x.dtype)) @ x
def get_inputs():
    return [torch.randn(12, 8)]
"""
LARGEST = """
class Model(nn.Module):
    def forward(self, x):
        return torch.cat([x, (x - 9).clamp(min=0)], -1)
def get_inputs():
    return [torch.randn(12, 8)]
"""
OF_VALUES = "NaN and infinities in x"


@pytest.mark.parametrize(
    ("reference", "old", "new"),
    [
        (DIAGONAL, "torch.diag(self.gain) @ x", "self.gain[:, None] * x"),
        (
            SUMMED,
            "torch.tril(torch.ones(x.shape[0], x.shape[0], dtype=x.dtype)) @ x",
            "x.cumsum(0)",
        ),
    ],
)
def test_numbers_where_nan_was_multiplied_by_zero_are_a_difference_that_is_stated(
    lines, reference, old, new
):
    found = lines(reference, reference.replace(old, new))
    assert broken(found) == set()
    assert found[OF_VALUES].result == "differs"
    assert re.search(r"NaN: output 0: \d+ elements are finite", found[OF_VALUES].detail)
    assert "for all finite numbers" in found[OF_VALUES].detail


SWALLOWED = {
    "of its own element": (DIAGONAL, "self.gain[:, None] * x.nan_to_num()"),
    "by another number": (DIAGONAL, "self.gain[:, None] * x + x.isnan().any()"),
    "with more NaN elsewhere": (
        DIAGONAL,
        "(self.gain[:, None] * x).masked_fill(x.isnan().any(1, keepdim=True), float('nan'))",
    ),
    "of infinities alone": (DIAGONAL, "self.gain[:, None] * x.clamp(-1e4, 1e4)"),
    "beyond a bound": (LARGEST, "torch.cat([x, (x - 9).clamp(min=0).nan_to_num()], -1)"),
}


@pytest.mark.parametrize(("reference", "new"), SWALLOWED.values(), ids=SWALLOWED)
def test_numbers_in_the_place_of_nan_break_the_line_where_they_depend_on_it(lines, reference, new):
    old = re.search(r"return (.*)\n", reference)[1]
    found = lines(reference, reference.replace(old, new))
    assert broken(found) == {OF_VALUES}


OF_SUBNORMALS = "subnormal numbers in x"
EXPONENTIAL = """
class Model(nn.Module):
    def forward(self, x):
        return F.elu(x)
def get_inputs():
    return [torch.randn(12, 8)]
"""


@pytest.mark.parametrize(
    ("new", "result", "detail"),
    [
        ("torch.where(x > 0, x, x.expm1())", "held", ""),
        ("F.elu(x * (x.abs() > 2e-38))", "differs", "subnormal numbers are zeros to it; compilers"),
        ("torch.where(x > 0, x, x.exp() - 1)", "differs", "output 0 is off by"),
        ("F.elu(x) if x.abs().amax() > 2e-38 else 1 / 0", "differs", "division by zero"),
    ],
)
def test_subnormal_numbers_that_are_lost_are_stated_and_break_nothing(lines, new, result, detail):
    found = lines(EXPONENTIAL, EXPONENTIAL.replace("F.elu(x)", new), OF_SUBNORMALS)[OF_SUBNORMALS]
    assert found.result == result
    assert detail in found.detail


def test_a_reference_that_loses_subnormal_numbers_asks_nobody_to_keep_them(lines):
    rounded = EXPONENTIAL.replace("F.elu(x)", "F.elu(x).half()")
    found = lines(rounded, rounded, OF_SUBNORMALS)[OF_SUBNORMALS]
    assert found.result == "not_applicable"
    assert "zeros to it" in found.detail


FAULTS = {
    "a number of the call": (
        "* factor",
        "* 2.0",
        "factor changed",
        "factor = 3.125",
    ),
    "a default of the constructor": (
        "self.slope)",
        "0.5)",
        "slope of the constructor changed",
        "slope = 0.875",
    ),
    "a layout": (
        "x * self.weight",
        "torch.as_strided(x, x.shape, (x.shape[1] * 8, 8, 1)) * self.weight",
        "layout of x: transposed",
        "x transposed",
    ),
    "a number of rows": (
        "return F",
        "x = x * (1.0 if x.shape[0] == 6 else 1.1)\n        return F",
        "more rows of x",
        "x.shape[0] = 7",
    ),
    "a length": (
        "return F",
        "x = x * (1.0 if x.shape[1] == 4 else 1.1)\n        return F",
        "x.shape[1] = 5",
        "x.shape[1] = 5",
    ),
    "a dtype": ("* factor", "* factor + torch.zeros(1)", "dtype bfloat16", "expected bfloat16"),
    "gradients": ("* factor", "* factor\n    forward = torch.no_grad()(forward)", "gradients", ""),
    "NaN": ("x * self", "x.nan_to_num() * self", "NaN and infinities in x", "NaN"),
    "memory": (
        "return F",
        "self.__dict__.setdefault('history', []).append(x[:1].clone())\n        return F",
        "what calls keep",
        "bytes of tensors",
    ),
    "weights that are replaced": (
        "* self.weight",
        "* self.__dict__.setdefault('own', self.weight)",
        "weight changed alone",
        "for another Parameter",
    ),
    "pickling": (
        "self.slope = slope",
        "self.slope = slope\n        self.twice = lambda x: x",
        "pickle",
        "it fails",
    ),
    "the train mode": (
        "* factor",
        "* (factor if not self.training else 3.0)",
        "train mode and back",
        "output 0 in the other mode",
    ),
    "inference mode": (
        "return F",
        "x = x * (2 if torch.is_inference_mode_enabled() else 1)\n        return F",
        "inference mode and back",
        "output 0 in inference mode",
    ),
    "what it keeps of a call in inference mode": (
        "* self.weight",
        "* self.weight * self.__dict__.setdefault('ones', torch.ones(8))",
        "inference mode and back",
        "it fails",
    ),
}


@pytest.mark.parametrize(("old", "new", "aspect", "detail"), FAULTS.values(), ids=FAULTS)
def test_a_fault_breaks_the_line_that_names_it(lines, old, new, aspect, detail):
    assert old in SCALED
    found = lines(SCALED, SCALED.replace(old, new), aspect)
    assert aspect in broken(found)
    assert detail in found[aspect].detail


IMAGES = """
class Model(nn.Module):
    def forward(self, x):
        return x * 2.0
def get_inputs():
    return [torch.randn(2, 3, 4, 5)]
"""


def test_images_whose_channels_lie_last_are_a_layout(lines):
    wrong = """def forward(self, x):
        if x.is_contiguous(memory_format=torch.channels_last):
            return x * 3.0"""
    aspect = "layout of x: transposed"
    assert broken(lines(IMAGES, IMAGES, aspect)) == set()
    found = lines(IMAGES, IMAGES.replace("def forward(self, x):", wrong), aspect)
    assert "x channels last" in found[aspect].detail


def test_a_module_that_cannot_be_pickled_breaks_nothing_else(lines):
    old, new, aspect, _ = FAULTS["pickling"]
    assert broken(lines(SCALED, SCALED.replace(old, new))) == {aspect}


LOOKUP = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
    def forward(self, ids, mask):
        return self.table(ids) * mask[..., None]
def get_inputs():
    return [torch.randint(0, 10, (3, 6)), torch.ones(3, 6, dtype=torch.long)]
"""


def test_rows_of_a_table_that_no_input_has_shown(lines):
    found = lines(LOOKUP, LOOKUP.replace("self.table(ids)", "self.table(ids % 10)"), "range of ids")
    assert "range of ids" in broken(found)
    assert "up to 49" in found["range of ids"].detail


def test_a_mask_of_ones_that_is_ignored(lines):
    found = lines(LOOKUP, LOOKUP.replace(" * mask[..., None]", "* 1"))
    assert broken(found) == {"mask not trivial"}
    assert "masked" in found["mask not trivial"].detail


CACHE = """
class Model(nn.Module):
    def forward(self, x, cache):
        cache["x"] = x * 2
        self.last = x.sum()
        return [x + 1, x * 3]
def get_inputs():
    return [torch.randn(3, 4), {}]
"""


def test_what_the_caller_finds_in_its_own_dictionary(lines):
    found = lines(CACHE, CACHE.replace('cache["x"] = x * 2', "pass"))
    assert broken(found) == {"contents of cache"}


def test_what_the_caller_reads_from_the_module(lines):
    found = lines(CACHE, CACHE.replace("self.last = x.sum()", "pass"))
    assert broken(found) == {"attributes last"}


def test_the_same_list_again(lines):
    again = CACHE.replace("return [x + 1, x * 3]", "self.own[:] = [x + 1, x * 3]; return self.own")
    again = again.replace("    def forward", "    own = []\n    def forward")
    assert "outputs that are kept" in broken(lines(CACHE, again, "outputs that are kept"))


TWICE = """
class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient
class Model(nn.Module):
    def forward(self, x):
        return x * x
def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.mark.parametrize(("text", "result"), [("", "not_tried"), ("create_graph = 1", "broken")])
def test_an_error_in_second_derivatives_counts_where_any_are_taken(lines, text, result):
    reference = TWICE + text
    once = (
        "".join(reference.rsplit("x * x", 1)[:1]) + "Once.apply(x)" + reference.rsplit("x * x")[-1]
    )
    found = lines(reference, once, "gradients", "second derivatives")
    assert found["gradients"].result == "held"
    assert found["second derivatives"].result == result
    assert "it fails" in found["second derivatives"].detail


def test_a_crash_costs_its_own_line(lines):
    crash = "if x.shape[0] == 1: import os; os._exit(3)\n        return F"
    found = lines(SCALED, SCALED.replace("return F", crash))
    assert broken(found) == {"one row of x"}
    assert "exited with code 3" in found["one row of x"].detail


def test_without_time_nothing_is_tried_and_each_line_says_so(template, learned):
    case = learned(SCALED)
    known, case.contract = case.contract, None
    checks, _ = examine_contract(case, template, program(SCALED), LIMITS, 0.0)
    case.contract = known
    tried = [check for check in checks if check.detail != "out of time"]
    assert len(checks) >= 25
    assert all(check.result == "not_tried" for check in checks)
    assert len(tried) <= 1  # what never can be


def test_the_reference_is_learned_once(template, learned, monkeypatch):
    case = learned(SCALED)
    examine_contract(case, template, program(SCALED), LIMITS, BUDGET_S)
    before = dict(case.contract.learned)
    monkeypatch.setattr(
        "cudal1_ci.sandboxed.verifier.contract.examination.learn_line",
        lambda *_: pytest.fail("it was learned again"),
    )
    checks, _ = examine_contract(case, template, program(SCALED), LIMITS, BUDGET_S)
    assert case.contract.learned == before
    assert {check.result for check in checks} == {"held", "not_applicable", "not_tried"}


RANDOM = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4)
        self.norm = nn.BatchNorm1d(16)
    def forward(self, x):
        return self.drop(self.norm(x))
def get_inputs():
    return [torch.randn(64, 16)]
"""
BOTH_MODES = "train mode and back"
OTHER_DRAWS = "torch.rand(3); return self.drop(self.norm(x))"


def test_other_random_numbers_of_the_same_distribution_are_right(lines):
    found = lines(RANDOM, RANDOM.replace("return self.drop(self.norm(x))", OTHER_DRAWS), BOTH_MODES)
    assert found[BOTH_MODES].result == "held"


def test_running_statistics_are_compared_though_outputs_are_random(lines):
    stale = RANDOM.replace(
        "self.norm(x)",
        "F.batch_norm(x, None, None, self.norm.weight, "
        "self.norm.bias, True) if self.training else self.norm(x)",
    )
    found = lines(RANDOM, stale, BOTH_MODES)
    assert BOTH_MODES in broken(found)
    assert "buffer norm" in found[BOTH_MODES].detail


LOST = """
DEAD = []
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
    def forward(self, x):
        if DEAD or x.dim() != 2:
            DEAD.append(True)
            raise RuntimeError("CUDA error: device-side assert triggered")
        return x * self.weight
def get_inputs():
    return [torch.randn(6, 8)]
"""


def test_a_process_that_lost_its_gpu_fails_one_line_and_not_those_after_it(lines):
    """Such a process fails each later call with the same words."""
    found = lines(LOST, LOST.replace("x * self.weight", "self.weight * x"))
    results = {aspect: check.result for aspect, check in found.items()}
    assert results["fewer dimensions of x"] == "not_applicable"
    assert results["deepcopy"] == results["pickle"] == "held"


ITERATED = """
class Model(nn.Module):
    def forward(self, rows):
        return (row * 2 for row in rows)
def get_inputs():
    return [iter([torch.randn(4, 8), torch.randn(4, 8)])]
"""


@pytest.mark.parametrize(
    ("new", "is_right"),
    [
        ("iter([row * 2 for row in rows])", True),
        ("iter([row.clamp(-1e4, 1e4) * 2 for row in rows])", False),
    ],
)
def test_items_of_iterators_are_compared_and_not_their_kind(lines, new, is_right):
    found = lines(ITERATED, ITERATED.replace("(row * 2 for row in rows)", new), "outputs", "NaN")
    assert found
    assert bool(broken(found)) is not is_right
