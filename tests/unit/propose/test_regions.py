"""Parts of a module that are compiled: which ones are found, and how they are written."""

from __future__ import annotations

import shutil
from textwrap import dedent

import msgspec
import pytest
import torch

from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.wrappers.region_strategy import CompiledRegions
from cudal1_ci.records import TextProgram
from tests.fakes import an_evaluation
from tests.unit.propose.recorded.rig import assert_same, outputs, problem_and_recording

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

"""
TAIL = """

def get_inputs():
    return [torch.rand(64, 64, 64) + 0.5]
"""
FUSED = """\
        x = x * 2
        x = x + 1
        x = x.sigmoid()
        x = x - 3
        x = x * x
"""
ON = CompiledRegions(PlaybookConfig(compile=True))


def module(body: str, before: str = "", others: str = "", init: str = "") -> str:
    """Return a file whose forward has these lines, between two products."""
    made = f"        self.linear = nn.Linear(64, 64)\n{init}"
    forward = f"        x = self.linear(x)\n{body}        return self.linear(x)\n"
    constructor = f"    def __init__(self):\n        super().__init__()\n{made}"
    model = f"class Model(nn.Module):\n{constructor}\n    def forward(self, x):\n{before}{forward}"
    return f"{HEAD}{dedent(others)}\n\n{model}{TAIL}"


def programs(tmp_path, text: str, mode: str = "infer") -> list[str]:
    problem, recording = problem_and_recording(tmp_path, text, mode)
    found = ON.propose_recorded(problem, recording, (), 9)
    assert all(isinstance(one.program, TextProgram) for one in found)
    return [one.program.source for one in found if isinstance(one.program, TextProgram)]


def added(text: str, new: str) -> str:
    """Return the lines that are new, without empty ones."""
    before = text.splitlines()
    return "\n".join(one for one in new.splitlines() if one and one not in before)


@pytest.fixture
def eager(monkeypatch):
    """Run compiled functions as they are written."""
    monkeypatch.setattr(torch, "compile", lambda function: function)


def test_statements_are_moved_with_what_they_read(tmp_path, eager):
    body = """\
        scores = self.linear(x) / self.scale
        # where it is small
        scores = scores.masked_fill(scores < self.limit, 0.0)
        weights = scores.softmax(-1)
        x = weights @ x
"""
    text = module(body, init="        self.scale, self.limit = 3.0, 0.1\n")
    (new,) = programs(tmp_path, text)
    assert added(text, new).splitlines() == [
        "@torch.compile",
        "def compute_weights(projected, scale, limit):",
        "    scores = projected / scale",
        "    # where it is small",
        "    scores = scores.masked_fill(scores < limit, 0.0)",
        "    return scores.softmax(-1)",
        "        weights = compute_weights(self.linear(x), self.scale, self.limit)",
    ]
    assert_same(tmp_path, text, new)


def test_a_helper_and_a_submodule_get_one_line(tmp_path, eager):
    helper = """
    def activated(x):
        inner = 0.8 * (x + 0.04 * x.pow(3))
        return 0.5 * x * (1 + torch.tanh(inner))
    """
    text = module("        x = activated(x)\n", others=helper)
    (new,) = programs(tmp_path, text)
    assert added(text, new) == "@torch.compile"
    assert "@torch.compile\ndef activated(x):" in new
    assert_same(tmp_path, text, new)
    norm = """
    class Norm(nn.Module):
        def forward(self, x):
            mean = x.mean(1, keepdim=True)
            var = (x - mean).pow(2).mean(1, keepdim=True)
            return (x - mean) / torch.sqrt(var + 1e-6)
    """
    text = module("        x = self.norm(x)\n", others=norm, init="        self.norm = Norm()\n")
    (new,) = programs(tmp_path, text)
    assert added(text, new) == "    @torch.compile"
    assert "class Norm(nn.Module):\n    @torch.compile\n    def forward(self, x):" in new
    assert_same(tmp_path, text, new)


def test_one_expression_within_a_product(tmp_path, eager):
    text = module("        x = self.linear(self.linear(x).sigmoid() * x.tanh() + 1)\n")
    (new,) = programs(tmp_path, text)
    lines = added(text, new).splitlines()
    assert lines[-1] == "        x = self.linear(fused_tanh_mul_add(self.linear(x), x))"
    assert "    return projected.sigmoid() * x.tanh() + 1" in lines
    assert_same(tmp_path, text, new)


def test_a_table_of_positions_stays_outside(tmp_path, eager):
    table = """\
        t = torch.arange(x.shape[-1]).float()
        angles = t / 10000.0
        cos, sin = angles.cos(), angles.sin()
"""
    text = module(f"{table}        x = x * cos + x.neg() * sin\n")
    (new,) = programs(tmp_path, text)
    assert table in new
    assert "    return x * cos + x.neg() * sin" in new
    assert_same(tmp_path, text, new)


def test_names_read_later_are_returned_and_others_are_not(tmp_path, eager):
    body = """\
        a = x * 2
        b = a + 1
        c = (b * b).sigmoid() * a
        x = self.linear(c) + self.linear(b)
"""
    (new,) = programs(tmp_path, module(body))
    assert "    return b, c\n" in new and "        b, c = " in new
    assert_same(tmp_path, module(body), new)


@pytest.mark.parametrize("turns", [1, 3])
def test_each_turn_of_a_loop_is_a_call(tmp_path, eager, turns):
    loop = f"        for _ in range({turns}):\n" + "".join(
        f"    {line}\n" for line in FUSED.splitlines()
    )
    text = module(f"{loop}            x = self.linear(x)\n")
    (new,) = programs(tmp_path, text)
    assert "                x = " not in new and "            x = fused_" in new
    assert_same(tmp_path, text, new)


@pytest.mark.parametrize(
    "line",
    [
        "x.add_(1)",
        "x[0] = 1",
        "x += 1",
        "x = x + torch.rand_like(x)",
        "x = F.dropout(x, 0.5, self.training)",
        "print(x.shape)",
        "x = x * x.max().item()",
        "x = x[x[0, 0].argsort()]",
        "x = x.sort(-1)[0]",
        "x = [one * 2 for one in (x, x)][1]",
        "note(x)",
        "if x.sum() > 0: x = x * 2",
    ],
)
def test_what_ends_a_region(tmp_path, line):
    others = "seen = []\n\ndef note(x):\n    seen.append(x.shape)\n"
    text = module(FUSED + f"        {line}\n" + FUSED, others=others)
    (*_, new) = programs(tmp_path, text)
    assert f"\n        {line}\n" in new
    assert new.count("@torch.compile") == 2


@pytest.mark.parametrize(
    ("body", "before"),
    [
        (f"{FUSED}        yield x\n", ""),
        (FUSED, "        global seen\n        seen = 1\n"),
    ],
)
def test_functions_that_are_left_as_they_are(tmp_path, body, before):
    if "yield" in body:
        text = module("        x = sum(self.parts(x))\n", others="").replace(
            "    def forward", f"    def parts(self, x):\n{body}\n    def forward"
        )
    else:
        text = module(body, before)
    assert programs(tmp_path, text) == []


def test_a_closure_is_no_region_and_what_it_reads_is_returned(tmp_path, eager):
    inner = "        def later():\n            return x\n\n"
    text = module(FUSED, inner).replace("return self.linear(x)\n", "return self.linear(later())\n")
    (new,) = programs(tmp_path, text)
    assert "        x = fused_" in new
    assert_same(tmp_path, text, new)
    rebound = "        def inner(x):\n            nonlocal y\n            y = x + 1\n"
    rebound += "".join(f"    {line}\n" for line in FUSED.splitlines()) + "            return x\n\n"
    text = module("        x = inner(x)\n", f"        y = x\n{rebound}")
    assert programs(tmp_path, text) == []


def test_an_early_return_ends_a_region(tmp_path, eager):
    early = "        if self.training:\n            return x\n"
    (*_, new) = programs(tmp_path, module(FUSED + early + FUSED))
    assert early in new and new.count("@torch.compile") == 2
    assert_same(tmp_path, module(FUSED + early + FUSED), new)


def test_a_branch_is_moved_only_where_its_names_are_bound(tmp_path, eager):
    bound = "        if self.training:\n            x = x * 3\n"
    text = module(FUSED + bound + FUSED)
    (new,) = programs(tmp_path, text)
    assert new.count("@torch.compile") == 1 and "    if training:\n        x = x * 3" in new
    assert_same(tmp_path, text, new)
    unbound = "        if self.training:\n            y = x * 3\n"
    read = "        x = self.linear(x) if not self.training else y\n"
    assert programs(tmp_path, module(FUSED + unbound + FUSED + read)) == []


def test_the_whole_target_is_left_to_the_wrapper(tmp_path):
    text = module(FUSED)
    whole = text.replace("x = self.linear(x)", "x = x + 1").replace("self.linear(x)", "x")
    assert programs(tmp_path, whole) == []


def test_regions_that_save_little_are_not_tried(tmp_path):
    assert programs(tmp_path, module("        x = x.relu()\n")) == []
    heavy = "        x = x @ x @ x @ x @ x @ x @ x @ x @ x\n" * 4
    assert programs(tmp_path, module(f"{heavy}        x = x * 2 + 1\n")) == []


def test_the_best_region_and_then_all(tmp_path):
    between = "        x = self.linear(x)\n"
    text = module(f"{FUSED}{between}        x = (x * 3).tanh() + 1\n")
    best, every = programs(tmp_path, text)
    assert best.count("@torch.compile") == 1 and every.count("@torch.compile") == 2
    assert FUSED not in best


def test_the_switch_of_compilation_is_kept(tmp_path):
    found = problem_and_recording(tmp_path, module(FUSED))
    for config in (
        PlaybookConfig(compile=False),
        PlaybookConfig(compile=True, skip=("compiled_region",)),
        PlaybookConfig(compile=True, skip=("compilation",)),
    ):
        assert CompiledRegions(config, kind="cuda").propose_recorded(*found, (), 9) == []
    (made,) = ON.propose_recorded(*found, (), 9)
    assert made.proposer == "playbook:compiled_region"
    assert "the first call of each process compiles" in made.edits[0].precondition
    assert "other shapes" in made.edits[0].precondition


def test_regions_of_a_faster_program_come_on_top_of_it(tmp_path):
    problem, recording = problem_and_recording(tmp_path, module(FUSED))
    (made,) = ON.propose_recorded(problem, recording, (), 9)
    edit = msgspec.structs.replace(made.edits[0], operator="rewritten")
    program = TextProgram(source=module(FUSED.replace("* x", "** 2")), entry="Model")
    rewritten = msgspec.structs.replace(made, program=program, edits=(edit,))
    assert ON.base([an_evaluation(rewritten, speedup=1.0)]) is None
    evaluations = [an_evaluation(rewritten, speedup=1.5), an_evaluation(made, speedup=2.0)]
    assert ON.base(evaluations) == rewritten
    _, again = problem_and_recording(tmp_path, program.source)
    (both,) = ON.propose_on(problem, rewritten, again, (), 9)
    assert [one.operator for one in both.edits] == ["rewritten", "compiled_region"]
    assert both.problem_id == problem.id
    assert isinstance(both.program, TextProgram) and "x ** 2" in both.program.source
    assert CompiledRegions(PlaybookConfig(compile=False)).base(evaluations) is None


@pytest.mark.compiles
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_compiled_gives_the_same(tmp_path):
    text = module(FUSED)
    (new,) = programs(tmp_path, text)
    torch.testing.assert_close(
        outputs(new, tmp_path / "after.py"), outputs(text, tmp_path / "again.py")
    )
