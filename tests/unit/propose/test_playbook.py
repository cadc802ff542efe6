"""The playbook as a proposer: rounds, combinations, what it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.rewrites import Playbook, PlaybookConfig
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.propose.target_file import with_text
from cudal1_ci.records import (
    Call,
    Candidate,
    Exemplar,
    Problem,
    Target,
    TextProgram,
    TreeProgram,
    Workload,
    content_hash,
)

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
    playbook = Playbook(PlaybookConfig(compile=True), min_share=0.001)
    found = proposers(playbook.propose(problem, (), 20))
    assert found[-1].endswith("compile")
    assert (found == ["playbook:compile"]) is is_left
    assert not is_left or Playbook(min_share=0.001).propose(problem, (), 20) == []


def test_later_rounds_combine_what_passed_and_gained():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    scores = {"playbook:silu": 1.5, "playbook:needless_copy": 1.1, "playbook:sigmoid": 0.9}
    exemplars = [Exemplar(candidate=c, score=scores.get(c.proposer, 0.0)) for c in first]
    assert proposers(Playbook().propose(problem, exemplars, 20)) == ["playbook:silu+needless_copy"]


def test_a_combination_that_was_shown_is_not_proposed_again():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    exemplars = [Exemplar(candidate=c, score=2.0) for c in first]
    assert "playbook:silu+sigmoid+needless_copy" not in proposers(
        Playbook().propose(problem, exemplars, 20)
    )


WRITTEN = """\
import torch
import torch.nn.functional as F


def ModelNew(x):
    y = F.silu(x)
    y = y.clone() * 2
    return torch.sigmoid(y)
"""


def of_a_model(problem: Problem, score: float, text: str = WRITTEN) -> Exemplar:
    program = TextProgram(source=text, entry="ModelNew")
    candidate = Candidate(
        problem_id=problem.id, program=program, proposer="a-model", techniques=("fusion",)
    )
    return Exemplar(candidate=candidate, score=score)


def test_what_gained_is_done_to_the_best_of_a_model_too():
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    scores = {"playbook:needless_copy": 1.1, "playbook:sigmoid": 1.2}
    exemplars = [Exemplar(candidate=c, score=scores.get(c.proposer, 0.0)) for c in first]
    slower = of_a_model(problem, 1.3, WRITTEN.replace("F.silu(x)", "x * torch.sigmoid(x)"))
    best = of_a_model(problem, 1.4)
    found = Playbook().propose(problem, [*exemplars, slower, best], 20)
    assert proposers(found) == ["playbook:sigmoid+needless_copy", "a-model+needless_copy"]
    (_, together) = found
    assert together.program == TextProgram(source=WRITTEN.replace(".clone()", ""), entry="ModelNew")
    assert together.techniques == ("fusion", "memory layout")
    assert together.exemplar_ids == (best.candidate.id,)


@pytest.mark.parametrize(
    ("score", "text"), [(0.9, WRITTEN), (1.4, WRITTEN.replace(".clone()", ""))]
)
def test_a_model_that_gained_nothing_or_has_it_already_is_left_alone(score, text):
    problem = text_problem()
    first = Playbook().propose(problem, (), 20)
    scores = {"playbook:needless_copy": 1.1}
    exemplars = [Exemplar(candidate=c, score=scores.get(c.proposer, 0.0)) for c in first]
    assert Playbook().propose(problem, [*exemplars, of_a_model(problem, score, text)], 20) == []


def test_what_is_of_the_whole_program_is_done_to_a_models_alone_too():
    source = (
        "import torch\nfrom torch import nn\n\n\nclass {}(nn.Module):\n    def forward(self, x):\n"
    )
    text = source.format("Model") + "        return (x * torch.sigmoid(x)).clone() + 1\n"
    problem = text_problem(text)
    playbook = Playbook(PlaybookConfig(cuda_graph=True))
    first = playbook.propose(problem, (), 20)
    gained = {"playbook:silu", "playbook:cuda_graph"}
    exemplars = [Exemplar(candidate=c, score=1.0 + (c.proposer in gained)) for c in first]
    body = "        return x * torch.sigmoid(x) + 1\n"
    best = of_a_model(problem, 3.0, source.format("ModelNew") + body)
    found = playbook.propose(problem, [*exemplars, best], 20)
    assert proposers(found)[-2:] == ["a-model+silu+cuda_graph", "a-model+cuda_graph"]
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
    scores = {"playbook:needless_copy": 1.1}
    exemplars = [Exemplar(candidate=c, score=scores.get(c.proposer, 0.0)) for c in first]
    text = WRITTEN.replace("ModelNew", "Model").replace("* 2", "+ y")
    program = with_text(problem, SOURCE, text)
    written = Candidate(problem_id=problem.id, program=program, proposer="a-model")
    exemplars.append(Exemplar(candidate=written, score=1.4))
    (together,) = Playbook().propose(problem, exemplars, 20)
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
        for candidate in Playbook(config).propose(text_problem(HELPED), (), 20)
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
