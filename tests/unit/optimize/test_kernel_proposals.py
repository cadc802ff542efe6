"""Kernels from discovery to a patch, with a model and a judge that answer from tables."""

from __future__ import annotations

import math
import re
import subprocess

import pytest

from cudal1_ci.discover import DiscoveryConfig
from cudal1_ci.discover.declared import declarations
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import survey
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.run import review
from cudal1_ci.propose import launch_config
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.launch_config.strategy import KernelLaunches
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.records import Candidate, Evaluation, Problem, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.render.published import published
from tests.fakes import FakeModel, FakeSession, an_evaluation
from tests.kernel_answers import CUDA, KERNELS, TRITON, Kernel, untuned

ids = {"ids": ["cuda", "triton"]}
INPUTS = ["float32[64, 64]"]
WORKLOADS = (
    {"target": "slowformer/kernels/scale_ext.py:scale_shift", "inputs": [*INPUTS, 0.5, 1.5]},
    {"target": "slowformer/kernels/swish_triton.py:silu", "inputs": INPUTS},
)
MARKS = {
    "wrong": ("x[i]) * scale);", "sigmoid(2 * value)"),
    "cheating": ("x.dim() > 60",),
}


def kind_of(candidate: Candidate) -> str:
    (file,) = candidate.program.overlay
    for kind, marks in MARKS.items():
        if any(mark in file.text for mark in marks):
            return kind
    return "right"


class Verifier(FakeSession):
    """Sees what a GPU would show of the answers."""

    def __init__(self):
        super().__init__({})
        self.judged: list[str] = []

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        kind = kind_of(candidate)
        self.judged.append(kind)
        names = [one.name for one in problem.workloads]
        status = {"wrong": "incorrect_values", "cheating": "reward_hack", "right": "passed"}[kind]
        return an_evaluation(candidate, status, 2.0, names)

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        return Verdict(status="passed")

    def profile(self, workload: str, *, is_candidate: bool):
        return [{"name": "k", "num_calls": 1, "time_us": 3.5}]


def plan_of(root, kernel: Kernel):
    evidence = Evidence(declared=declarations(WORKLOADS, "test"))
    found = survey(root, DiscoveryConfig(), evidence=evidence, repository="r", on_gpu=True)
    targets = tuple(one for one in found.targets if one.target.qualname == kernel.qualname)
    assert not found.notices
    return type(found)(root=root, repository="r", targets=targets)


def reviewed(root, kernel: Kernel, model: FakeModel | None, judge: Verifier, *skipped: str):
    with Archive.open(root / "archive.sqlite") as archive:
        run_id = archive.start_run({})
        optimizer = model and Optimizer(
            model=model,
            config=OptimizerConfig(num_rounds=1, num_samples=3),
            contrast=ContrastConfig(),
            num_concurrent=1,
            overlaps=True,
            since=archive.run_started_at(run_id),
        )
        bench = RunContext(
            session=judge,
            strategies=[KernelLaunches(PlaybookConfig(skip=skipped))],
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(),
            optimizer=optimizer,
            policy="p",
        )
        return review(plan_of(root, kernel), bench)


@pytest.mark.parametrize("kernel", KERNELS, **ids)
def test_answers_for_a_kernel_are_judged_and_the_right_one_is_a_patch_of_its_file(tmp_path, kernel):
    root = untuned(tmp_path / "project")
    replies = iter(kernel.answers())
    model = FakeModel(lambda messages, seed: next(replies))
    judge = Verifier()
    report = reviewed(root, kernel, model, judge, launch_config.NAME)
    (entry,) = report.entries
    assert sorted(judge.judged) == ["cheating", "right", "wrong"]
    assert entry.model_use.refused == {}
    best = entry.evaluations[entry.best]
    assert kind_of(best.candidate) == "right"
    assert [one.name for one in entry.workloads] == [f"{kernel.launcher}: 64x64"]
    (file,) = best.candidate.program.overlay
    assert file.path == kernel.path
    prompt = model.prompts[0][1].content
    assert f"`{kernel.qualname}`" in prompt.splitlines()[0]
    assert f"`{kernel.launcher}`" in prompt
    assert ("<<<blocks, threads>>>" if kernel is CUDA else "BLOCK=64)") in prompt

    shown = published(report).entries[0]
    patch = shown.evaluations[shown.best].candidate.patch
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=root, check=True)
    assert (root / kernel.path).read_text() == file.text
    assert ("gridDim.x" if kernel is CUDA else "inside = offsets < n") in file.text


class Stopwatch(Verifier):
    """Finds larger blocks faster, up to so many threads or elements."""

    def __init__(self, best: int):
        super().__init__()
        self.best = best

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        (file,) = candidate.program.overlay
        (size,) = map(int, re.findall(r"(?:BLOCK|threads) ?= ?(\d+)", file.text))
        self.judged.append(file.text)
        speedup = 1.5 ** -abs(math.log2(size / self.best)) * 4
        names = [one.name for one in problem.workloads]
        return an_evaluation(candidate, "passed", speedup, names)


@pytest.mark.parametrize("kernel", KERNELS, **ids)
def test_without_a_model_other_numbers_in_its_launch_are_a_patch(tmp_path, kernel):
    root = untuned(tmp_path / "project")
    text = (root / kernel.path).read_text()
    number = 32 if kernel is CUDA else 64
    judge = Stopwatch(best=8 * number)
    report = reviewed(root, kernel, None, judge)
    (entry,) = report.entries
    best = entry.evaluations[entry.best]
    name = "threads" if kernel is CUDA else "BLOCK"
    assert best.candidate.proposer == f"playbook:{launch_config.NAME}({name}={8 * number})"
    assert len(judge.judged) == len(set(judge.judged)), "nothing is judged twice"
    patch = published(report).entries[0].evaluations[entry.best].candidate.patch
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=root, check=True)
    # Two steps in the first round, the third in the second.
    assert (root / kernel.path).read_text() == text.replace(str(number), str(8 * number))


def test_without_a_model_a_kernel_whose_launches_have_no_number_is_left_with_the_reason(tmp_path):
    root = untuned(tmp_path / "project")
    judge = Verifier()
    (entry,) = reviewed(root, TRITON, None, judge, launch_config.FAMILY).entries
    assert "the numbers of its launches are changed" in entry.skipped
    assert "--model" in entry.hint
    assert not judge.judged
