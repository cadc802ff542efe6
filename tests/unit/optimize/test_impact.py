"""What all proposals do together: roots, sizes, one tree, what is left out, and the budget."""

from __future__ import annotations

import dataclasses
import time

import msgspec
import pytest

from cudal1_ci.discover import DiscoveryConfig, reference_program
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import survey
from cudal1_ci.discover.traces import TracedCall, Traces
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.impact import kept_share, with_impact
from cudal1_ci.optimize.roots import roots_of
from cudal1_ci.optimize.trials import TOO_LITTLE
from cudal1_ci.records import (
    Call,
    CallCost,
    Candidate,
    ContractCheck,
    Entry,
    Evaluation,
    Finding,
    OverlayFile,
    Problem,
    Report,
    TensorSpec,
    TracedSteps,
    Verdict,
    Workload,
    content_hash,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.recording import Frame, RecordedOperation, Recording
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import CPU, a_measurement

PARTS = """\
import torch
from torch import nn


class Norm(nn.Module):
    def forward(self, x):
        return slow_norm(x)


class Mix(nn.Module):
    def forward(self, x):
        return slow_mix(x)


class Lone(nn.Module):
    def forward(self, x):
        return slow_lone(x)
"""
MODEL = """\
from torch import nn

from parts import Mix, Norm


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = Norm(), Mix()

    def forward(self, x):
        return self.mix(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)
"""
WORKLOAD = Workload(
    name="small",
    provenance="declared",
    init=Call(),
    call=Call(args=(TensorSpec(shape=(4, 8), dtype="float32"),)),
)
STEPS = TracedSteps(durations_us=(1e4, 1e4), optimizer="AdamW")


class Rig:
    """A verifier that reads the words of a candidate's files: `wrong` fails, and a root is as much
    faster as it has `fast` lines. It knows what each root calls."""

    def __init__(self):
        self.asked: list[str] = []
        self.slower_at: dict[str, float] = {}
        """Speedups at names of workloads."""
        self.fails_with: tuple[str, ...] = ()
        """Words that make a root fail when they are in it together."""
        self.calls = {"Net": ("Norm", "Mix"), "Lone": ("Lone",)}
        self.dies = False
        self.takes_s = 0.0
        self.limits: list[float | None] = []
        """Seconds that trials might take."""

    def device(self):
        return CPU

    def check(self, problem, most_s=None):
        return Verdict(status="passed")

    def evaluate(self, problem, candidate):
        self.limits.append(None)
        return self.answer(problem, candidate)

    def answer(self, problem, candidate):
        time.sleep(self.takes_s)
        if self.dies:
            raise WorkerError("gone")
        text = "".join(file.text for file in candidate.program.overlay)
        name = problem.reference.import_path.rpartition(":")[2]
        self.asked.append(f"{name} {','.join(w.name for w in problem.workloads)}")
        if self.fails_with and all(word in text for word in self.fails_with):
            finding = Finding(rule="values.mismatch", message="off by 1")
            verdict = Verdict(status="incorrect_values", findings=(finding,))
            return Evaluation(candidate=candidate, verdict=verdict, device=CPU)
        speedup = 1.0 + 0.5 * text.count("fast_")
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=tuple(
                a_measurement(self.slower_at.get(w.name, speedup), w.name)
                for w in problem.workloads
            ),
            device=CPU,
            phase="confirmed",
        )

    def screen(self, problem, candidate, most_s=None):
        self.limits.append(most_s)
        found = self.answer(problem, candidate)
        return msgspec.structs.replace(found, phase="screened")

    def confirm(self, problem, candidate, most_s=None):
        self.limits.append(most_s)
        return self.answer(problem, candidate)

    def record(self, problem, workload):
        name = problem.reference.import_path.rpartition(":")[2]
        lines = {"Norm": 5, "Mix": 10, "Lone": 15}
        frames = [Frame(file="model.py", function=name, first_line=1, caller=None, call=None)]
        operations = [operation(0, 60.0)]
        for number, part in enumerate(self.calls.get(name, ()), 1):
            frames.append(
                Frame(
                    file="parts.py", function=part, first_line=lines[part] + 1, caller=0, call=None
                )
            )
            operations.append(operation(number, 10.0 * number))
        return Recording(
            values=(),
            frames=tuple(frames),
            scopes=(),
            operations=tuple(operations),
            outputs=(),
            total_us=1000.0,
        )

    def price(self, program, workload, energy_s=0.0):
        return CallCost(host_us=5.0, num_launches=9 - len(program.overlay))


def operation(frame, host_us):
    return RecordedOperation(
        name="mul", args=(), kwargs=(), outputs=(), frame=frame, span=None, scope=None,
        host_us=host_us,
    )  # fmt: skip


class Setting:
    """A small project with proposals, and a context to measure them in."""

    def __init__(self, path):
        self.path, self.rig, self.config = path, Rig(), ReviewConfig()
        (path / "parts.py").write_text(PARTS)
        (path / "model.py").write_text(MODEL)
        plan = survey(path, DiscoveryConfig(), evidence=Evidence(), repository="r")
        self.workloads = {one.target.qualname: (WORKLOAD,) for one in plan.targets}
        self.bare = plan
        self.started_s = time.monotonic()

    @property
    def plan(self):
        def with_problem(one):
            target = one.target
            workloads = self.workloads.get(target.qualname, ())
            program = reference_program(self.path, target, self.bare.discovery)
            problem = Problem(reference=program, workloads=workloads, target=target)
            return dataclasses.replace(
                one, problem=problem if workloads else None, workloads=workloads
            )

        targets = tuple(map(with_problem, self.bare.targets))
        return dataclasses.replace(self.bare, targets=targets, evidence=None)

    def entry(self, name, replaced=None, speedup=2.0):
        """Return an entry whose proposal replaces one line of its class."""
        (planned,) = [one for one in self.plan.targets if one.target.qualname == name]
        old, new = replaced or (f"slow_{name.lower()}", f"fast_{name.lower()}")
        file = OverlayFile(
            path="parts.py", text=PARTS.replace(old, new), base_digest=content_hash(PARTS)
        )
        program = msgspec.structs.replace(planned.problem.reference, overlay=(file,))
        candidate = Candidate(problem_id=planned.problem.id, program=program, proposer="rule")
        evaluation = Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=(a_measurement(speedup),),
            device=CPU,
            phase="confirmed",
        )
        return Entry(
            target=planned.target, workloads=(WORKLOAD,), evaluations=(evaluation,), best=0
        )

    def measure(self, *entries, **fields):
        with Archive.open(self.path / "archive.sqlite") as archive:
            context = RunContext(
                session=self.rig,
                strategies=[],
                archive=archive,
                progress=SilentProgress(),
                config=self.config,
                policy="p",
                started_s=self.started_s,
                impact_share=self.config.impact_share,
            )
            report = Report(repository="r", entries=entries, device=CPU, **fields)
            return with_impact(report, self.plan, context)


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


def test_roots_are_the_outermost_targets_with_a_workload(setting):
    def roots():
        targets = [one.target for one in setting.plan.targets]
        parts = [one for one in targets if one.path == "parts.py"]
        return {
            root.planned.target.qualname: {one.qualname for one in root.parts}
            for root in roots_of(setting.plan, parts)
        }

    assert roots() == {"Net": {"Norm", "Mix"}, "Lone": {"Lone"}}
    del setting.workloads["Net"]
    assert roots() == {"Block": {"Norm", "Mix"}, "Lone": {"Lone"}}


def test_recorded_calls_say_what_the_roots_are(setting):
    """And not whatever else of the tree may use a target."""
    targets = [one.target for one in setting.plan.targets]
    parts = {one.qualname: one for one in targets if one.path == "parts.py"}

    def roots_with(root):
        plan = dataclasses.replace(
            setting.plan,
            targets=tuple(
                dataclasses.replace(one, workloads=(msgspec.structs.replace(WORKLOAD, root=root),))
                if one.target == parts["Norm"]
                else one
                for one in setting.plan.targets
            ),
        )
        found = roots_of(plan, [parts["Norm"], parts["Mix"]])
        return {root.name: {one.qualname for one in root.parts} for root in found}

    assert roots_with(None) == {"model.py:Net": {"Norm", "Mix"}}
    itself = parts["Norm"].address
    assert roots_with(itself) == {itself: {"Norm"}, "model.py:Net": {"Mix"}}
    block = "model.py:Block"
    assert roots_with(block) == {block: {"Norm"}, "model.py:Net": {"Mix"}}
    assert roots_with("gone.py:Model") == {"model.py:Net": {"Norm", "Mix"}}


def test_a_plan_of_one_target_has_the_roots_of_the_tree(setting):
    (norm,) = [one for one in setting.plan.targets if one.target.qualname == "Norm"]
    traced = TracedCall(
        target="model.py:Net", num_calls=1, total_s=1.0, init=Call(), call=WORKLOAD.call
    )
    evidence = Evidence(traces=Traces({"model.py:Net": (traced,)}, 1.0))
    plan = dataclasses.replace(setting.plan, targets=(norm,), evidence=evidence)
    (root,) = roots_of(plan, [norm.target])
    assert root.name == "model.py:Net" and root.contains_others


def test_a_root_that_the_search_has_timed_alone_is_not_timed_again(setting):
    (impact,) = setting.measure(setting.entry("Lone")).impact
    assert impact.root == "parts.py:Lone"
    assert impact.speedup == pytest.approx(2.0, rel=0.05)
    assert "Lone small" not in setting.rig.asked
    setting.measure(setting.entry("Lone"), setting.entry("Norm"))
    assert "Lone small" in setting.rig.asked, "another proposal changes its file"


def test_little_is_kept_for_roots_that_the_search_times(setting):
    share = setting.config.impact_share
    assert kept_share(setting.plan, setting.config) == share
    for name in ("Net", "Block"):
        del setting.workloads[name]
    assert 0 < kept_share(setting.plan, setting.config) < share


def test_all_proposals_are_one_patch_that_the_root_is_measured_on(setting):
    report = setting.measure(setting.entry("Norm"), setting.entry("Mix"))
    (impact,) = report.impact
    assert impact.root == "model.py:Net"
    assert impact.speedup == pytest.approx(2.0, rel=0.05)
    assert impact.low <= impact.speedup <= impact.high
    assert (impact.before.num_launches, impact.after.num_launches) == (9, 8)
    assert impact.compiled.reason
    # What saves more of the root's call comes first.
    assert report.together.included == ("parts.py:Mix", "parts.py:Norm")
    assert "+        return fast_norm(x)" in report.together.patch
    assert "+        return fast_mix(x)" in report.together.patch
    assert not report.together.left_out and not report.together.not_reached
    _, mix = report.entries
    assert mix.in_roots[0].share == pytest.approx(20 / 90)
    # Of the root's own time, not of a recorded call, which is slower.
    assert mix.in_roots[0].time_us == pytest.approx(impact.before_us * 20 / 90)


def test_of_proposals_that_change_one_line_the_one_that_saves_more_is_taken(setting):
    other = setting.entry("Norm", replaced=("slow_mix", "fast_other"))
    report = setting.measure(other, setting.entry("Mix"))
    assert report.together.included == ("parts.py:Mix",)
    (left,) = report.together.left_out
    assert left.what == "parts.py:Norm" and "same lines as Mix" in left.reason


def test_a_proposal_with_which_the_root_is_wrong_is_left_out(setting):
    setting.rig.fails_with = ("fast_norm", "fast_mix")
    report = setting.measure(setting.entry("Norm"), setting.entry("Mix"))
    assert report.together.included == ("parts.py:Mix",)
    (left,) = report.together.left_out
    assert left.what == "parts.py:Norm" and "wrong values: off by 1" in left.reason
    assert report.impact[0].speedup == pytest.approx(1.5, rel=0.05)


def test_a_proposal_that_is_slower_at_another_size_is_taken_back(setting):
    setting.rig.slower_at = {"small, half batch": 0.5}
    report = setting.measure(setting.entry("Norm"))
    (entry,) = report.entries
    assert entry.best is None
    (finding,) = entry.evaluations[0].findings
    assert finding.rule == "size.slower" and "half batch" in finding.message
    assert report.impact is None and report.together is None


def test_a_runner_up_that_was_not_examined_does_not_take_its_place(setting):
    setting.rig.slower_at = {"small, half batch": 0.5}
    held = (ContractCheck(aspect="gradients", result="held"),)
    entry = setting.entry("Norm")
    best = msgspec.structs.replace(entry.evaluations[entry.best], contract=held)
    second = msgspec.structs.replace(
        best,
        contract=None,
        candidate=msgspec.structs.replace(best.candidate, known_id="second"),
    )
    entry = msgspec.structs.replace(entry, evaluations=(best, second))
    (found,) = setting.measure(entry).entries
    assert found.best is None
    assert found.evaluations[1].findings == second.findings, "it is not timed at other sizes"


def test_times_at_other_sizes_are_kept(setting):
    setting.rig.slower_at = {"small, double batch": 1.2}
    (entry,) = setting.measure(setting.entry("Norm")).entries
    assert [one.workload for one in entry.at_sizes] == ["small, half batch", "small, double batch"]
    assert entry.best == 0 and entry.sizes_not_tried is None


def test_a_traced_training_step_is_measured_too(setting):
    train = msgspec.structs.replace(WORKLOAD, name="train", mode="train", steps=STEPS)
    setting.workloads["Net"] = (WORKLOAD, train)
    report = setting.measure(setting.entry("Norm"))
    step = report.impact[-1]
    assert (step.kind, step.optimizer, step.root) == ("step", "AdamW", "model.py:Net")
    assert "Step train" in setting.rig.asked


def test_a_second_run_measures_nothing_again(setting):
    first = setting.measure(setting.entry("Norm"), setting.entry("Mix"))
    asked = len(setting.rig.asked)
    second = setting.measure(setting.entry("Norm"), setting.entry("Mix"))
    assert len(setting.rig.asked) == asked
    assert second.impact == first.impact and second.together == first.together


def test_no_trial_may_take_more_than_is_left_of_the_budget(setting):
    setting.measure(setting.entry("Norm"))
    assert setting.rig.limits and set(setting.rig.limits) == {None}
    setting.rig.limits.clear()
    setting.config = ReviewConfig(budget_s=500.0)
    setting.measure(setting.entry("Mix"))
    assert setting.rig.limits
    assert all(one is not None and 0 < one <= 500.0 for one in setting.rig.limits)


def test_what_the_budget_does_not_reach_is_named_and_the_run_can_be_resumed(setting):
    setting.config = ReviewConfig(budget_s=100.0)
    setting.started_s = time.monotonic() - 95.0
    report = setting.measure(setting.entry("Norm"))
    assert report.ended == "budget"
    assert report.impact is None
    reasons = {one.what: one.reason for one in report.together.not_reached}
    assert reasons["model.py:Net"] == TOO_LITTLE
    assert report.entries[0].sizes_not_tried.endswith(f"2 of 2 sizes: {TOO_LITTLE}")


def test_a_verifier_that_dies_costs_what_it_was_at(setting):
    setting.rig.dies = True
    report = setting.measure(setting.entry("Norm"))
    assert report.impact is None and report.entries[0].best == 0
    assert all("gone" in one.reason for one in report.together.not_reached)


def test_without_proposals_or_with_no_share_of_the_budget_nothing_is_measured(setting):
    assert setting.measure().impact is None
    setting.config = ReviewConfig(impact_share=0.0)
    report = setting.measure(setting.entry("Norm"))
    assert report.together is None and not setting.rig.asked


def test_an_interrupted_run_measures_nothing_more(setting):
    report = setting.measure(setting.entry("Norm"), ended="interrupted")
    assert report.together is None and not setting.rig.asked
