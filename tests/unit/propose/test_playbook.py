"""The playbook as a proposer: rounds, combinations, what it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.propose.target_file import with_file
from cudal1_ci.records import (
    Call,
    Candidate,
    Evaluation,
    Generation,
    Problem,
    Target,
    TextProgram,
    TreeProgram,
    Workload,
    content_hash,
)
from tests.fakes import an_evaluation

SOURCE = """\
import torch
import torch.nn.functional as F


def Model(x):
    y = x * torch.sigmoid(x)
    y = y.clone() * 2
    return 1 / (1 + torch.exp(-y))
"""
WORKLOAD = Workload(name="w", provenance="declared", call=Call())


def text_problem(source: str = SOURCE) -> Problem:
    program = TextProgram(source=source, entry="Model")
    return Problem(reference=program, workloads=(WORKLOAD,))


def proposers(candidates) -> list[str]:
    return [candidate.proposer for candidate in candidates]


def measured(candidates, **scores: float) -> list[Evaluation]:
    """Return what was found of candidates, by the operators of each; others were slower."""
    return [
        an_evaluation(one, speedup=scores.get(one.proposer.removeprefix("playbook:"), 0.5))
        for one in candidates
    ]


def test_the_first_round_is_every_rewrite_alone_and_all_of_them_together():
    assert proposers(Playbook().propose(text_problem(), (), 20)) == [
        "playbook:silu",
        "playbook:sigmoid",
        "playbook:needless_copy",
        "playbook:silu+sigmoid+needless_copy",
    ]


@pytest.mark.parametrize(("share", "is_left"), [(0.0004, True), (0.002, False), (None, False)])
def test_of_what_takes_a_negligible_share_the_whole_module_alone_is_rewritten(share, is_left):
    workload = msgspec.structs.replace(WORKLOAD, share=share)
    problem = msgspec.structs.replace(text_problem(), workloads=(workload,))
    _, rewrites, *_, wrappers = default_strategies(
        PlaybookConfig(compile=True), "cpu", min_share=0.001
    )
    assert proposers(wrappers.propose(problem, (), 20)) == ["playbook:compile"]
    assert (rewrites.propose(problem, (), 20) == []) is is_left


def test_later_rounds_combine_what_passed_and_gained():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    found = measured(first, silu=1.5, needless_copy=1.1, sigmoid=0.9)
    assert proposers(Playbook().propose(problem, found, 20)) == ["playbook:silu+needless_copy"]


def test_a_combination_that_was_shown_is_not_proposed_again():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    found = [an_evaluation(one) for one in first]
    assert "playbook:silu+sigmoid+needless_copy" not in proposers(
        Playbook().propose(problem, found, 20)
    )


WRITTEN = """\
import torch
import torch.nn.functional as F


def ModelNew(x):
    y = F.silu(x)
    y = y.clone() * 2
    return torch.sigmoid(y)
"""


GENERATION = Generation(model="a-model", temperature=0.8, max_tokens=9, prompt_digest="0")


def of_a_model(problem: Problem, speedup: float, text: str = WRITTEN) -> Evaluation:
    candidate = Candidate(
        problem_id=problem.id,
        program=TextProgram(source=text, entry="ModelNew"),
        proposer="a-model",
        techniques=("fusion",),
        generation=GENERATION,
    )
    return an_evaluation(candidate, speedup=speedup)


def test_what_gained_is_done_to_the_best_of_a_model_too():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    known = measured(first, needless_copy=1.1, sigmoid=1.2)
    slower = of_a_model(problem, 1.3, WRITTEN.replace("F.silu(x)", "x * torch.sigmoid(x)"))
    best = of_a_model(problem, 1.4)
    found = Playbook().propose(problem, [*known, slower, best], 20)
    assert proposers(found) == ["playbook:sigmoid+needless_copy", "a-model+needless_copy"]
    (_, together) = found
    assert together.program == TextProgram(source=WRITTEN.replace(".clone()", ""), entry="ModelNew")
    assert together.techniques == ("fusion", "memory layout")
    assert together.exemplar_ids == (best.candidate.id,)


@pytest.mark.parametrize(
    ("speedup", "text"), [(0.9, WRITTEN), (1.4, WRITTEN.replace(".clone()", ""))]
)
def test_a_model_that_gained_nothing_or_has_it_already_is_left_alone(speedup, text):
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    known = measured(first, needless_copy=1.1)
    assert Playbook().propose(problem, [*known, of_a_model(problem, speedup, text)], 20) == []


def test_what_others_published_is_not_built_upon():
    problem = text_problem()
    known = measured(Playbook().propose(problem, (), 20), needless_copy=1.1)
    best = of_a_model(problem, 3.0)
    theirs = msgspec.structs.replace(best.candidate, proposer="published:h100", generation=None)
    published = msgspec.structs.replace(best, candidate=theirs)
    assert Playbook().propose(problem, [*known, published], 20) == []
    assert Playbook().propose(problem, [*known, best], 20) != []


CONVOLUTION = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = self.conv(x)
        return (x * torch.sigmoid(x)).clone() + 1
"""


def test_what_is_of_the_whole_program_is_done_to_a_models_alone_too():
    problem = text_problem(CONVOLUTION)
    playbook = Playbook(kind="cuda")
    first = playbook.propose(problem, (), 20)
    known = measured(first, silu=2.0, channels_last=2.0)
    text = CONVOLUTION.replace("class Model", "class ModelNew").replace(".clone()", "")
    best = of_a_model(problem, 3.0, text)
    found = playbook.propose(problem, [*known, best], 20)
    assert proposers(found)[-2:] == ["a-model+silu+channels_last", "a-model+channels_last"]
    assert "sigmoid" in found[-1].program.source


def test_in_a_checkout_the_models_file_is_what_is_changed(tmp_path):
    (tmp_path / "layers.py").write_text(SOURCE)
    reference = TreeProgram(
        root=str(tmp_path), import_root=".", import_path="layers:Model", digest="0"
    )
    target = Target(
        path="layers.py", qualname="Model", kind="torch_function", first_line=5, last_line=8
    )
    problem = Problem(reference=reference, workloads=(WORKLOAD,), target=target)
    first = Playbook().propose(problem, (), 20)
    known = measured(first, needless_copy=1.1)
    text = WRITTEN.replace("ModelNew", "Model").replace("* 2", "+ y")
    program = with_file(reference, "layers.py", SOURCE, text)
    written = Candidate(
        problem_id=problem.id, program=program, proposer="a-model", generation=GENERATION
    )
    known.append(an_evaluation(written, speedup=1.4))
    (together,) = Playbook().propose(problem, known, 20)
    (file,) = together.program.overlay
    assert (file.path, file.text) == ("layers.py", text.replace(".clone()", ""))
    assert file.base_digest == content_hash(SOURCE), "of what is there, not of what a model wrote"


HELPED = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Gate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class Table:
    def lookup(self, x):
        return x * torch.sigmoid(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.conv = nn.Conv2d(3, 3, 3)

    def forward(self, x):
        return self.conv(self.gate(x))


def get_inputs():
    x = torch.ones(1, 3, 4, 4)
    return [x * torch.sigmoid(x)]
"""


def test_of_a_text_all_modules_are_rewritten_and_nothing_else():
    config = PlaybookConfig(compile=True, cuda_graph=True)
    candidates = {
        candidate.proposer: candidate.program.source
        for strategy in default_strategies(config, "cpu")
        for candidate in strategy.propose(text_problem(HELPED), (), 20)
    }
    expected = HELPED.replace("return x * torch.sigmoid(x)", "return F.silu(x)", 1)
    assert candidates["playbook:silu"] == expected
    assert candidates["playbook:compile"].count("torch.compile") == 1
    assert candidates["playbook:cuda_graph"].count("@cuda_graphed") == 1
    target = Target(path="a.py", qualname="Model", kind="torch_module", first_line=1, last_line=9)
    program = TextProgram(source=HELPED, entry="Model")
    one_class = Problem(reference=program, workloads=(WORKLOAD,), target=target)
    assert "playbook:silu" not in proposers(Playbook().propose(one_class, (), 20))


def test_at_most_n_candidates_are_proposed():
    assert len(Playbook().propose(text_problem(), (), 2)) == 2


@pytest.mark.parametrize(
    ("name", "mend"), [("spda", "did you mean `sdpa`"), ("everything", "docs/playbook.md")]
)
def test_a_name_to_skip_that_is_none_is_refused(name, mend):
    with pytest.raises(ConfigError, match=f"playbook.skip.*{name}.*{mend}"):
        PlaybookConfig(skip=(name,))


def test_rewrites_and_families_can_be_left_out():
    config = PlaybookConfig(skip=("silu", "memory layout"))
    assert proposers(Playbook(config).propose(text_problem(), (), 20)) == ["playbook:sigmoid"]


@pytest.mark.parametrize(
    "source", ["def (", "x = 1\n", "class Other: pass\n", "def Model(x):\n    return x.sin()\n", ""]
)
def test_there_is_nothing_to_say_of_code_that_is_broken_missing_or_good(source):
    assert Playbook().propose(text_problem(source), (), 20) == []


def test_a_proposal_for_a_checkout_overlays_the_targets_file_and_only_it(tmp_path):
    file = tmp_path / "src" / "pkg" / "ops.py"
    file.parent.mkdir(parents=True)
    file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    target = Target(
        path="src/pkg/ops.py", qualname="Model", kind="torch_function", first_line=5, last_line=8
    )
    program = TreeProgram(
        root=str(tmp_path), import_root="src", import_path="pkg.ops:Model", digest="d"
    )
    problem = Problem(reference=program, workloads=(WORKLOAD,), target=target)
    candidate = Playbook().propose(problem, (), 20)[0]
    assert isinstance(candidate.program, TreeProgram)
    (overlay,) = candidate.program.overlay
    assert overlay.path == "src/pkg/ops.py"
    assert "F.silu(x)\r\n" in overlay.text
    assert overlay.base_digest == content_hash(SOURCE.replace("\n", "\r\n"))
    assert file.read_bytes().count(b"sigmoid") == 1, "the checkout is not touched"


def test_a_target_that_is_not_in_the_checkout_has_no_proposals(tmp_path):
    program = TreeProgram(root=str(tmp_path), import_root=".", import_path="gone:Model", digest="d")
    assert Playbook().propose(Problem(reference=program, workloads=()), (), 20) == []


def test_names_of_rewrites_are_distinct_and_each_says_why():
    names = [rewrite.name for rewrite in REWRITES]
    assert len(names) == len(set(names)) >= 25
    assert all(r.why.endswith(".") and r.precondition and r.family for r in REWRITES)


def test_the_page_of_the_playbook_is_up_to_date():
    root = Path(__file__).parents[3]
    spec = importlib.util.spec_from_file_location("page", root / "experiments/playbook_table.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = (root / "docs/playbook.md").read_text(encoding="utf-8")
    assert written == page.page(), "run `python experiments/playbook_table.py`"
