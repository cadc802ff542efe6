"""Programs of all kinds before a real judge."""

from __future__ import annotations

import fcntl
import os
import subprocess
import textwrap
import threading
import time
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import Local, lock
from cudal1_ci.records import (
    Call,
    Candidate,
    Constant,
    Device,
    Instance,
    Made,
    Mapping,
    OverlayFile,
    Problem,
    Symbol,
    TensorSpec,
    TextProgram,
    TreeProgram,
    Workload,
)
from cudal1_ci.sandboxed.wire import verdicts
from cudal1_ci.sandboxed.wire.verifier import Verified
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.session import CUT, GIVEN_UP
from cudal1_ci.verification.verify import problem_of as text_problem_of
from tests.apart import SHARED
from tests.told import told_times

pytestmark = pytest.mark.starts_verifier

QUICK = TrialConfig(call_s=4, load_s=30, num_rounds=5, measure_s=1.5)
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def tensor(*shape: int, **fields) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=fields.pop("dtype", "float32"), **fields)


def problem_of(source: str, *args, init=(), mode="infer", kwargs=None) -> Problem:
    workload = Workload(
        name="w",
        provenance="declared",
        init=Call(args=tuple(Constant(value=value) for value in init)),
        call=Call(args=args, kwargs=kwargs or {}),
        mode=mode,
    )
    program = TextProgram(source=HEAD + textwrap.dedent(source), entry="Model")
    return Problem(reference=program, workloads=(workload,))


@pytest.fixture(autouse=True)
def told(request):
    """Times that are told, but in tests of `times` and in those that look at a `clock`."""
    if request.node.get_closest_marker("times") or "clock" in request.fixturenames:
        yield
        return
    with told_times():
        yield


@pytest.fixture
def clock():
    """Calls are timed: what is said of them depends on no clock, unless it is that it is noisy."""


def passes(verdict) -> bool:
    """Whether it does, or only the machine's noise hides that."""
    rules = [finding.rule for finding in verdict.findings[:1]]
    return verdict.status == "passed" or rules == ["timing.noisy"]


def evaluate(session: Session, problem: Problem, source: str, by: str = "evaluate"):
    program = TextProgram(source=HEAD + textwrap.dedent(source), entry="Model")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    return getattr(session, by)(problem, candidate)


LINEAR = """
class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        return {forward}
"""


def linear(forward: str) -> str:
    return LINEAR.format(forward=forward)


@pytest.mark.parametrize(
    ("forward", "status", "rule"),
    [
        ("self.fc(x) + 1", "incorrect_values", "values.mismatch"),
        ("self.fc(x)[:, :4]", "incorrect_shape", "output.shape"),
        ("(self.fc(x),)", "incorrect_shape", "output.structure"),
        ("self.fc(x).double()", "incorrect_dtype", "output.dtype"),
        ("self.missing(x)", "runtime_error", "program.raised"),
        ("self.fc(x) + torch.ones(2**46)", "runtime_error", "memory.exhausted"),
        ("__import__('sys').exit(0)", "runtime_error", "program.raised"),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "runtime_error", "runner.died"),
    ],
)
def test_what_is_wrong_with_a_candidate_is_named(session, forward, status, rule):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    evaluation = evaluate(session, problem, linear(forward))
    found = (evaluation.verdict.status, evaluation.verdict.findings[0].rule)
    assert found == (status, rule), evaluation.verdict


def candidate_of(problem: Problem, source: str) -> Candidate:
    program = TextProgram(source=HEAD + textwrap.dedent(source), entry="Model")
    return Candidate(problem_id=problem.id, program=program, proposer="test")


@pytest.mark.parametrize(
    ("forward", "rules"),
    [
        ("F.linear(x, self.fc.weight, self.fc.bias)", []),
        ("self.fc(x) + 1", ["values.mismatch"]),
        ("self.missing(x)", ["program.raised"]),
    ],
)
def test_to_examine_is_to_evaluate_without_a_measurement(session, forward, rules):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    candidate = candidate_of(problem, linear(forward))
    verdict = session.examine(problem, candidate)
    said = session.evaluate(problem, candidate).verdict
    # A traceback names folders of the process.
    assert verdict == msgspec.structs.replace(said, log=verdict.log)
    assert [finding.rule for finding in verdict.findings] == rules
    assert (verdict.status == "passed") is (not rules)


def test_what_a_text_alone_convicts_is_no_honest_candidate_to_examine(session):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    cheat = linear("__import__('gc').get_objects() and self.fc(x)")
    verdict = session.examine(problem, candidate_of(problem, cheat))
    evaluation = session.evaluate(problem, candidate_of(problem, cheat))
    assert verdict.status == evaluation.verdict.status == "reward_hack"
    assert verdict.findings == evaluation.verdict.findings != ()


@pytest.mark.parametrize("is_here", [True, False])
def test_nobody_times_while_a_reference_is_learned_or_a_candidate_examined(
    monkeypatch, tmp_path, is_here
):
    """A judge on this machine holds the device, for one that sees other files the host does."""
    asked = []

    def ask(session, request, timeout_s):
        path = tmp_path / "cudal1-ci-cpu.lock"
        if not is_here:
            with path.open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert path.exists() is not is_here
        asked.append((request.op, request.turn))
        return Verified(verdict=verdicts.Verdict(status="passed"))

    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    monkeypatch.setattr(Session, "_lock", SHARED)
    monkeypatch.setattr(Local, "has_disk", is_here)
    monkeypatch.setattr(Session, "device", lambda session: Device(kind="cpu", name="none"))
    monkeypatch.setattr(Session, "_ask", ask)
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    Session(QUICK).examine(problem, candidate_of(problem, linear("self.fc(x)")))
    turn = "cpu" if is_here else None
    assert asked == [("check", turn), ("examine", turn)]


def test_a_judge_holds_its_device_while_it_examines(session):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    session.check(problem)
    waits = linear("self.fc(x)") + "\n\nimport time\ntime.sleep(1.0)\n"
    began_s = time.monotonic()
    said = []
    examining = threading.Thread(
        target=lambda: said.append(session.examine(problem, candidate_of(problem, waits)))
    )
    examining.start()
    time.sleep(0.5)
    path = lock.FOLDER / f"cudal1-ci-{session._lock()}.lock"
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    examining.join()
    assert time.monotonic() - began_s > 1.0
    assert [one.status for one in said] == ["passed"]


def test_a_session_with_cores_has_its_programs_on_all_of_them_and_does_not_time(clock):
    cores = sorted(os.sched_getaffinity(0))
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    tells = linear("self.tell()") + (
        "\n    def tell(self):\n"
        "        raise ValueError(sorted(__import__('os').sched_getaffinity(0)))\n"
    )
    with Session(QUICK, device="cpu", cores=cores) as several:
        verdict = several.examine(problem, candidate_of(problem, tells))
        assert verdict.findings[0].message == f"ValueError: {cores}"
        with pytest.raises(ValueError, match="does not time"):
            several.evaluate(problem, candidate_of(problem, tells))


def test_a_candidate_that_hangs_is_a_timeout(hasty_session):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    verdict = evaluate(hasty_session, problem, linear("__import__('time').sleep(60)")).verdict
    assert (verdict.status, verdict.findings[0].rule) == ("timeout", "runner.timeout")


def test_a_candidate_that_does_not_parse_is_a_compile_error(session):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    verdict = evaluate(session, problem, "def (").verdict
    assert verdict.status == "compile_error"
    assert "SyntaxError" in verdict.log


def test_a_candidate_with_other_state_keys_is_no_drop_in(session):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    verdict = evaluate(session, problem, linear("self.fc(x)").replace("fc", "linear")).verdict
    assert verdict.findings[0].rule == "state.keys"
    assert "fc.weight" in verdict.findings[0].message


@pytest.mark.times
def test_a_faster_candidate_passes_with_an_interval_and_a_control(device):
    slow = "class Model(nn.Module):\n    def forward(self, x):\n        "
    body = "for _ in range(120): y = x.sin()\n        return y"
    problem = problem_of(slow + body, tensor(64, 64))
    # Three launches, for which QUICK has time, say little on a machine whose cores are shared.
    with Session(msgspec.structs.replace(QUICK, measure_s=10.0), device=device) as patient:
        evaluation = evaluate(patient, problem, slow + "return x.sin()")
    assert evaluation.verdict.status == "passed"
    (measurement,) = evaluation.measurements
    found = speedups.speedup(measurement)
    assert found.low > 5
    assert found.low <= found.estimate <= found.high
    assert speedups.control(measurement) is not None


def test_the_oracle_is_in_double_precision_for_what_is_made_in_the_call_too(session):
    problem = problem_of(
        linear("self.fc(x) * torch.full((16,), 2.0, device=x.device)"), tensor(8, 16)
    )
    verdict = evaluate(session, problem, linear("self.fc(x) * 2")).verdict
    assert verdict.status == "passed"
    assert "oracle.absent" not in {finding.rule for finding in verdict.findings}


def test_copying_large_outputs_is_no_cheat(session, clock):
    problem = problem_of(linear("torch.cat([x.sin()] * 2)"), tensor(2048, 256))
    for forward in ("torch.cat([x.sin(), x.sin()])", "x.sin().repeat(2, 1)"):
        verdict = evaluate(session, problem, linear(forward)).verdict
        assert verdict.status in ("passed", "inconclusive"), verdict


COUNTER = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += {step}
        return x.sin()
"""


@pytest.mark.parametrize(
    ("reference", "candidate", "rule"),
    [
        ("1", "1", None),
        ("1", "2", "state.values"),
        ("1", "0", "state.values"),
        ("0", "1", "state.mutated"),
    ],
)
def test_state_after_the_calls_is_what_the_reference_leaves(session, reference, candidate, rule):
    problem = problem_of(COUNTER.format(step=reference), tensor(8, 16))
    verdict = evaluate(session, problem, COUNTER.format(step=candidate)).verdict
    if rule is None:
        assert verdict.status == "passed", verdict
    else:
        assert [finding.rule for finding in verdict.findings] == [rule]


def test_the_state_after_calls_is_copied_where_it_is_compared(session):
    source = COUNTER.format(step="0")
    problem = problem_of(source, tensor(8, 16, low=-1.0, high=1.5))
    assert session.check(problem).status == "passed"
    assert session.spent_on_runners["state_out"][0] == 3, "as it begins, and of two processes"
    same = Candidate(problem_id=problem.id, program=problem.reference, proposer="test")
    assert session.examine(problem, same).status == "passed"
    spent = session.spent_on_runners
    assert spent["call"][0] > spent["state_out"][0] == 1


@pytest.mark.parametrize(
    ("forward", "weak"),
    [
        ("x.mean() * (1 + 1e-6 * x.sin())", "a constant"),
        ("self.fc(x)", None),
        ("(x > 0).long()", None),
    ],
)
def test_a_workload_on_which_wrong_answers_would_pass_is_said_to_be_weak(session, forward, weak):
    problem = problem_of(linear(forward), tensor(8, 16))
    verdict = session.check(problem)
    said = [f.message for f in verdict.findings if f.rule == "workload.weak"]
    if weak is None:
        assert said == []
    else:
        assert any(weak in message for message in said)


def test_a_workload_on_which_one_number_is_always_right_is_degenerate(session):
    verdict = session.check(problem_of(linear("100 + 1e-5 * x.sin()"), tensor(8, 16)))
    assert verdict.status == "degenerate"
    assert [f.rule for f in verdict.findings] == ["reference.constant"]


def test_training_compares_gradients(session):
    problem = problem_of(
        linear("self.fc(x).relu()"), tensor(8, 16, requires_grad=True), mode="train"
    )
    assert evaluate(session, problem, linear("F.relu(self.fc(x))")).verdict.status == "passed"
    detached = evaluate(session, problem, linear("self.fc(x).relu() + 0 * self.fc(x.detach())"))
    assert detached.verdict.status == "passed"
    wrong = evaluate(session, problem, linear("self.fc(x.detach()).relu() + 0 * x")).verdict
    assert wrong.status == "incorrect_values"
    assert "gradient" in wrong.findings[0].message


def test_buffers_that_a_call_updates_are_compared(session):
    source = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(16)

        def forward(self, x):
            return self.bn(x)
    """
    problem = problem_of(source, tensor(8, 16, requires_grad=True), mode="train")
    forgetful = source.replace(
        "return self.bn(x)",
        "return F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, training=True)",
    )
    verdict = evaluate(session, problem, forgetful).verdict
    assert verdict.status == "incorrect_values"
    assert "running_" in verdict.findings[0].message or "num_batches" in verdict.findings[0].message


def test_an_examination_ends_with_its_seconds_and_nothing_is_known_then():
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    with Session(TrialConfig(num_rounds=2), device="cpu") as session:

        def verdict(forward, most_s):
            candidate = candidate_of(problem, linear(forward))
            return session.screen(problem, candidate, most_s).verdict

        assert session.check(problem).status == "passed"
        began_s = time.monotonic()
        cut = verdict("__import__('time').sleep(60)", 2.0)
        assert (cut.status, cut.findings[0].rule) == ("inconclusive", CUT)
        assert time.monotonic() - began_s < 50.0, "a call has 60 s"
        slow = "(x.shape[0] < 8 and __import__('time').sleep(60), self.fc(x))[1]"
        assert verdict(slow, 4.0).findings[0].rule == CUT, "on fewer rows"
        assert verdict("self.fc(x) * 1", 60.0).status == "passed"


def test_a_reference_ends_with_its_seconds_and_others_are_verified_after_it():
    slow = problem_of(linear("(__import__('time').sleep(30), self.fc(x))[1]"), tensor(8, 16))
    quick = problem_of(linear("self.fc(x)"), tensor(8, 16))
    with Session(TrialConfig(num_rounds=2), device="cpu") as session:
        session.device()
        began_s = time.monotonic()
        verdict = session.check(slow, 2.0)
        assert (verdict.status, verdict.findings[0].rule) == ("inconclusive", GIVEN_UP)
        screened = session.screen(slow, candidate_of(slow, linear("self.fc(x) * 1")), 3.0)
        assert screened.verdict.findings[0].rule == GIVEN_UP, "its reference is verified for it too"
        assert time.monotonic() - began_s < 28.0
        assert session.check(quick, 60.0).status == "passed"


def test_a_confirmation_measures_for_what_its_examination_leaves_of_its_seconds(clock, monkeypatch):
    limits = []

    def measured(seat, config, workload, goes_on):
        limits.append(config.measure_s)

    monkeypatch.setattr("cudal1_ci.verification.session.measure", measured)
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    candidate = candidate_of(problem, linear("self.fc(x) * 1"))
    with Session(TrialConfig(num_rounds=2, measure_s=50.0), device="cpu") as session:
        for most_s in (None, 49.0, 1000.0):
            assert session.confirm(problem, candidate, most_s).phase == "confirmed"
    assert limits[0] == limits[2] == 50.0
    assert limits[1] < 49.0


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("raise ValueError('no weights file')", "reference.raised"),
        ("return torch.randn(3, generator=torch.Generator().manual_seed(int(torch.empty(1)"
         ".random_().item()) + __import__('time').time_ns() % 999983))",
         "reference.nondeterministic"),
        ("return 'words'", "reference.no_tensor"),
        ("return torch.zeros_like(x)", "reference.constant"),
        ("return [row for row in x if row.sum() > 0]", "reference.dynamic_shape"),
        ("__import__('time').sleep(60)", "reference.timeout"),
        ("__import__('os')._exit(5)", "reference.died"),
    ],
)  # fmt: skip
def test_a_reference_that_cannot_be_judged_says_why(hasty_session, body, rule):
    source = f"class Model(nn.Module):\n    def forward(self, x):\n        {body}\n"
    verdict = hasty_session.check(problem_of(source, tensor(4, 4)))
    assert verdict.status in ("invalid_reference", "degenerate")
    assert verdict.findings[0].rule == rule, verdict


UNORDERED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def forward(self, x):
        order = torch.Generator().manual_seed(__import__("time").time_ns() % 999983)
        places = torch.randperm(len(x), generator=order)
        drawn = {noise} * torch.rand(16, generator=order)
        return torch.tanh(self.norm(self.fc(x[places])))[places.argsort()] + drawn
"""


def test_a_reference_that_adds_in_no_fixed_order_is_verified_within_its_error(session):
    """Kernels with atomic additions do. The gradient of a bias before a norm is nothing else."""
    adds = UNORDERED.format(noise=0.0)
    problem = problem_of(adds, tensor(512, 16), mode="train")
    assert session.check(problem).status == "passed"
    assert evaluate(session, problem, adds).verdict.status == "passed"
    off = adds.replace("tanh(", "tanh(1.05 * ")
    assert evaluate(session, problem, off).verdict.status == "incorrect_values"
    draws = UNORDERED.format(noise=1e-3)
    verdict = session.check(problem_of(draws, tensor(512, 16), mode="train"))
    assert verdict.findings[0].rule == "reference.nondeterministic"


def test_floats_of_a_byte_are_compared_as_their_bits(session):
    short = "torch.float8_e4m3fn"
    returned = f"class Model(nn.Module):\n    def forward(self, x):\n        return x.to({short})\n"
    kept = (
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.register_buffer('scale', torch.ones(4).to({short}))\n"
        f"        self.weight = nn.Parameter(torch.rand(4, 4).to({short}), requires_grad=False)\n"
        "    def forward(self, x):\n"
        "        return x.float() @ self.weight.float() * self.scale.float()\n"
    )
    made = f"{HEAD}{kept}\ndef get_inputs():\n    return [torch.rand(4, 4).to({short})]\n"
    for problem in (problem_of(returned, tensor(4, 4)), text_problem_of(made, "made.py")):
        assert session.check(problem).status == "passed"
    # They cannot be drawn.
    verdict = session.check(problem_of(kept, tensor(4, 4, dtype="float8_e4m3fn")))
    assert verdict.findings[0].rule == "reference.dtype", verdict
    assert "float8" in verdict.findings[0].message
    problem = problem_of(kept, tensor(4, 4))
    assert evaluate(session, problem, kept).verdict.status == "passed"
    baked = kept.replace("self.weight.float()", "self.weight.float().round()")
    assert evaluate(session, problem, baked).verdict.status == "incorrect_values"


def test_an_import_that_fails_is_the_references_fault(session):
    verdict = session.check(problem_of("import no_such_package", tensor(4)))
    assert verdict.findings[0].rule == "reference.raised"
    assert "importing" in verdict.findings[0].message
    assert "no_such_package" in verdict.log


def test_dropout_in_training_is_seeded_alike(session):
    problem = problem_of(
        linear("F.dropout(self.fc(x), 0.5, self.training)"), tensor(8, 16), mode="train"
    )
    assert session.check(problem).status == "passed"
    same = evaluate(session, problem, linear("F.dropout(self.fc(x), 0.5, True)"))
    assert same.verdict.status == "passed"
    other = evaluate(session, problem, linear("F.dropout(self.fc(x), 0.4, self.training)"))
    assert other.verdict.status == "incorrect_values"


OUTPUTS = """
import dataclasses
from typing import NamedTuple

class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

@dataclasses.dataclass
class Output:
    pair: Pair
    more: dict
    name: str = "x"

class Model(nn.Module):
    def forward(self, x, *, scale=1.0, flags=None):
        return Output(Pair(x.sin() * scale, x[:1] + 1), {{"k": [x.sum({dim}), None, 3]}})
"""


def test_outputs_of_any_nesting_and_keyword_arguments(session):
    kwargs = {
        "scale": Constant(value=2.0),
        "flags": Mapping(items=((Constant(value="a"), Symbol(path="torch:float16")),)),
    }
    source = textwrap.dedent(OUTPUTS)
    problem = problem_of(source.format(dim=0), tensor(4, 8), kwargs=kwargs)
    assert evaluate(session, problem, source.format(dim="dim=0")).verdict.status == "passed"
    wrong = source.format(dim=0).replace("None, 3", "None, 4")
    assert evaluate(session, problem, wrong).verdict.findings[0].rule == "output.structure"


SLEEPS = """
import time
class Model(nn.Module):
    def forward(self, x):
        time.sleep(0.5)
        return x * 2
"""


def give_up_learning(session):
    verdict = session.check(problem_of(SLEEPS, tensor(4)), most_s=1.0)
    assert (verdict.status, verdict.findings[0].rule) == ("inconclusive", GIVEN_UP)


def test_learning_a_reference_can_be_given_up(hasty_session):
    give_up_learning(hasty_session)
    assert hasty_session.check(problem_of(SLEEPS.replace("0.5", "0"), tensor(4))).status == "passed"


@pytest.mark.times
def test_learning_a_reference_is_given_up_in_time(hasty_session):
    started_s = time.monotonic()
    give_up_learning(hasty_session)
    assert time.monotonic() - started_s < 6


def test_user_functions_make_arguments_outside_of_the_judge(session):
    source = HEAD + textwrap.dedent(
        """
        class Model(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.table = nn.Embedding(n, 8)

            def forward(self, ids):
                return self.table(ids)

        def get_inputs():
            return [torch.randint(0, 10, (4, 6))]

        def get_init_inputs():
            return [10]
        """
    )
    workload = Workload(
        name="w",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    program = TextProgram(
        source=source.replace("self.table(ids)", "F.embedding(ids, self.table.weight)"),
        entry="Model",
    )
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    assert session.evaluate(problem, candidate).verdict.status == "passed"


# --- trees ---------------------------------------------------------------------


def make_tree(root: Path) -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/config.py": """
            from dataclasses import dataclass

            @dataclass
            class Config:
                dim: int = 8
            """,
        "src/pkg/ops.py": """
            def twice(x):
                return x + x
            """,
        "src/pkg/deep/__init__.py": "",
        "src/pkg/deep/block.py": """
            import inspect
            import torch
            from torch import nn
            from ..config import Config
            from ..ops import twice

            class Outer:
                class Block(nn.Module):
                    def __init__(self, config: Config):
                        super().__init__()
                        self.fc = nn.Linear(config.dim, config.dim)
                        self.register_buffer("steps", torch.arange(config.dim), persistent=False)
                        assert "class Outer" in inspect.getsource(inspect.getmodule(type(self)))

                    def forward(self, x):
                        for _ in range(30):
                            y = twice(self.fc(x)) + self.steps
                        return y
            """,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.fixture
def tree(tmp_path) -> Problem:
    make_tree(tmp_path)
    program = TreeProgram(
        root=str(tmp_path), import_root="src", import_path="pkg.deep.block:Outer.Block", digest="d"
    )
    init = Call(args=(Instance(factory="pkg.config:Config", kwargs={"dim": Constant(value=16)}),))
    call = Call(args=(tensor(4, 16),))
    workload = Workload(name="w", provenance="traced", init=init, call=call)
    return Problem(reference=program, workloads=(workload,))


def overlaid(problem: Problem, path: str, old: str, new: str) -> Candidate:
    assert isinstance(problem.reference, TreeProgram)
    text = (Path(problem.reference.root) / path).read_text()
    assert old in text
    program = TreeProgram(
        root=problem.reference.root,
        import_root="src",
        import_path=problem.reference.import_path,
        digest="d",
        overlay=(OverlayFile(path=path, text=text.replace(old, new)),),
    )
    return Candidate(problem_id=problem.id, program=program, proposer="test")


def test_a_module_deep_in_a_package_is_judged_with_an_overlay(session, tree):
    candidate = overlaid(tree, "src/pkg/deep/block.py", "range(30)", "range(1)")
    verdict = session.examine(tree, candidate)
    assert verdict.status == "passed", verdict


@pytest.mark.times
def test_a_module_deep_in_a_package_is_timed_with_an_overlay(session, tree):
    candidate = overlaid(tree, "src/pkg/deep/block.py", "range(30)", "range(1)")
    evaluation = session.evaluate(tree, candidate)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    assert speedups.speedup(evaluation.measurements[0]).low > 3


def test_an_overlay_of_a_helper_counts(session, tree):
    candidate = overlaid(tree, "src/pkg/ops.py", "x + x", "x * 3")
    assert session.evaluate(tree, candidate).verdict.status == "incorrect_values"


def test_an_overlay_may_add_a_file_that_a_changed_one_imports(session, tree):
    candidate = overlaid(tree, "src/pkg/ops.py", "x + x", "double(x)")
    (changed,) = candidate.program.overlay
    for text, status in (("2 * x", "passed"), ("3 * x", "incorrect_values")):
        new = OverlayFile(path="src/pkg/sums.py", text=f"def double(x):\n    return {text}\n")
        own = msgspec.structs.replace(changed, text=f"from .sums import double\n{changed.text}")
        program = msgspec.structs.replace(candidate.program, overlay=(own, new))
        added = msgspec.structs.replace(candidate, program=program)
        verdict = session.evaluate(tree, added).verdict
        rules = [one.rule for one in verdict.findings]
        is_too_busy_to_time = status == "passed" and rules == ["timing.noisy"]
        assert verdict.status == status or is_too_busy_to_time, verdict
    assert not (Path(tree.reference.root) / "src/pkg/sums.py").exists()


def test_nothing_is_written_to_the_checkout(session, tree):
    session.evaluate(tree, overlaid(tree, "src/pkg/ops.py", "x + x", "2 * x"))
    root = Path(tree.reference.root)
    assert not list(root.rglob("__pycache__"))
    assert "x + x" in (root / "src/pkg/ops.py").read_text()


# --- the judge as a process ---------------------------------------------------------------------


def test_a_judge_that_dies_costs_one_evaluation():
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    with Session(QUICK) as session:
        assert session.check(problem).status == "passed"
        session._worker.process.kill()
        with pytest.raises(WorkerError, match="verifier"):
            evaluate(session, problem, linear("self.fc(x)"))
        assert evaluate(session, problem, linear("self.fc(x)")).verdict.status == "passed"


def test_an_interpreter_without_torch_says_how_to_get_it(tmp_path):
    empty = tmp_path / "venv"
    subprocess.run(["python3", "-m", "venv", "--without-pip", str(empty)], check=True)
    with (
        Session(QUICK, python=str(empty / "bin/python")) as session,
        pytest.raises(WorkerError, match="requirements there"),
    ):
        session.device()


def test_an_interpreter_that_is_none_is_named():
    with (
        Session(QUICK, python="/nonexistent/python") as session,
        pytest.raises(WorkerError, match="--python"),
    ):
        session.device()


def test_no_process_is_left_behind():
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    escaping = linear(
        "(__import__('subprocess').Popen(['sleep', '321'], start_new_session=True), self.fc(x))[1]"
    )
    with Session(QUICK) as session:
        evaluate(session, problem, escaping)
        session_pid = session._worker.process.pid
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (alive(session_pid) or sleepers()):
        time.sleep(0.05)
    assert not alive(session_pid)
    assert not sleepers()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00321\x00":
                found.append(path.parent.name)
        except OSError:
            continue
    return found


CONVERTED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def to(self, device):
        return super().to(device)

    def forward(self, x):
        assert x.dtype == self.fc.weight.dtype == self.norm.running_mean.dtype
        assert torch.get_default_dtype() == {default}
        return {result}
"""


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    ("dtype", "default"), [("bfloat16", None), ("float16", None), ("float64", "float64")]
)
def test_a_module_is_converted_as_its_caller_did(session, dtype, default, mode):
    """And the oracle, which is in float64, is too, before it is widened."""
    words = {"default": f"torch.{default or 'float32'}"}
    if default is None:  # the oracle's calls make their tensors in float64
        words["default"] += " or x.dtype == torch.float64"
    workload = Workload(
        name="w", provenance="traced", init=Call(), call=Call(args=(tensor(8, 16, dtype=dtype),)),
        mode=mode, dtype=dtype, default_dtype=default,
    )  # fmt: skip
    source = CONVERTED.format(result="self.norm(self.fc(x)).relu()", **words)
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    assert session.check(problem).status == "passed"

    def verdict(result):
        text = CONVERTED.format(result=result, **words).replace("Model(", "ModelNew(")
        program = TextProgram(source=text, entry="ModelNew")
        candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
        return session.examine(problem, candidate)

    assert verdict("self.norm(self.fc(x)).clamp_min(0)").status == "passed"
    assert verdict("self.norm(self.fc(x)).abs()").status == "incorrect_values"
    plain = msgspec.structs.replace(workload, dtype=None, default_dtype=None)
    assert msgspec.structs.replace(problem, workloads=(plain,)).id != problem.id


@pytest.mark.parametrize(
    ("candidate", "status", "special"),
    [
        ("self.fc(x)", "passed", False),
        ("self.fc(x).view(8, 16)", "passed", True),
        ("self.fc(x) if len(x) == 8 else self.fc(x).abs()", "incorrect_values", True),
        ("self.fc(x) if len(x) == 8 else self.fc(x)[:1]", "incorrect_values", True),
    ],
)
def test_a_text_may_refuse_another_batch_and_not_be_wrong_on_it(
    session, candidate, status, special
):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    verdict = evaluate(session, problem, linear(candidate)).verdict
    assert verdict.status in (status, "inconclusive")
    assert ("shape.specialized" in {finding.rule for finding in verdict.findings}) is special


def test_a_patch_that_fails_on_another_batch_is_refused(session, tree):
    candidate = overlaid(tree, "src/pkg/ops.py", "x + x", "(x + x).view(4, 16)")
    verdict = session.evaluate(tree, candidate).verdict
    assert (verdict.status, verdict.findings[0].rule) == ("incorrect_shape", "shape.specialized")


@pytest.mark.parametrize(
    ("helper", "lost"),
    [
        ("2 * x", None),
        ("(x + x).detach()", "no gradient reaches `fc.bias`, `fc.weight`, `input 0` through it"),
        ("2 * x.detach() + 0 * x", None),
        ("torch.tensor(x.cpu().numpy() * 2).to(x)", "with gradients enabled a call fails"),
    ],
)
def test_a_patch_that_cuts_gradients_off_is_shown(session, tree, helper, lost):
    """Under a workload of inference, which says nothing of training."""
    text = (Path(tree.reference.root) / "src/pkg/ops.py").read_text()
    (Path(tree.reference.root) / "src/pkg/ops.py").write_text(f"import torch\n{text}")
    verdict = session.examine(tree, overlaid(tree, "src/pkg/ops.py", "x + x", helper))
    assert verdict.status == "passed", verdict
    messages = [one.message for one in verdict.findings if one.rule == "gradients.lost"]
    assert messages == [] if lost is None else messages[0].startswith(lost)


@pytest.mark.parametrize(("beside", "is_shown"), [("", True), ("  # torch.compile", False)])
def test_a_compiled_patch_is_not_compiled_again_where_its_gradients_are_compared(
    session, tree, beside, is_shown
):
    """This one cuts gradients off outside of training; to see that takes a third compilation."""
    (infer,) = tree.workloads
    train = msgspec.structs.replace(infer, name="train", mode="train")
    problem = msgspec.structs.replace(tree, workloads=(train, infer))
    cut = f"return y if self.training else y.detach(){beside}"
    verdict = session.examine(problem, overlaid(problem, "src/pkg/deep/block.py", "return y", cut))
    assert verdict.status == "passed", verdict
    assert ("gradients.lost" in {one.rule for one in verdict.findings}) is is_shown


def test_a_patch_that_dies_of_gradients_is_timed_by_another_process(tree, clock, kept_verifiers):
    """A single launch keeps the process that was examined, but not one in which a call failed."""
    dies = "x + x if not torch.is_grad_enabled() else __import__('os')._exit(3)"
    path = Path(tree.reference.root) / "src/pkg/ops.py"
    path.write_text(f"import torch\n{path.read_text()}")
    candidate = overlaid(tree, "src/pkg/ops.py", "x + x", dies)
    with Session(msgspec.structs.replace(QUICK, num_launches=1), device="cpu") as session:
        evaluation = session.evaluate(tree, candidate)
    assert passes(evaluation.verdict), evaluation.verdict
    if evaluation.verdict.status == "passed":
        assert "gradients.lost" in {one.rule for one in evaluation.verdict.findings}
        assert evaluation.measurements


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (
            "__import__('os').environ.update(SEEN='a value')",
            "state.environment: it changes environment variables: SEEN",
        ),
        (
            "__import__('warnings').filterwarnings('ignore')",
            "state.silences_warnings: it silences all warnings of the process",
        ),
        (
            "import threading, time; threading.active_count() == 1 and threading.Thread("
            "target=time.sleep, args=(9,), daemon=True, name='left').start()",
            "state.threads: it leaves threads behind: left",
        ),
    ],
)
def test_what_a_merged_candidate_brings_along_is_shown_once(session, statement, shown):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    (one,) = problem.workloads
    other = msgspec.structs.replace(one, name="other", call=Call(args=(tensor(4, 16),)))
    problem = msgspec.structs.replace(problem, workloads=(one, other))
    candidate = linear(f"self.fc(x); {statement}").replace("return self.fc(x); ", "") + (
        "        return self.fc(x)\n"
    )
    verdict = evaluate(session, problem, candidate).verdict
    assert verdict.status in ("passed", "inconclusive"), verdict
    assert [f"{one.rule}: {one.message}" for one in verdict.findings].count(shown) == 1


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        # Each is right on normal inputs, and wrong where one of the distributions looks.
        ("x.cumsum(-1)", "torch.cat([x[:, :15].cumsum(-1), x[:, :15].sum(-1, keepdim=True)], -1)"),
        ("x / x.abs().amax(-1, keepdim=True).clamp(1e-6)", "x / x.abs().amax().clamp(1e-6)"),
        ("torch.where(x == 1, x + 1, x)", "x.clone()"),
        ("torch.where(x.abs() > 20, x.sign() * 20, x)", "x.clone()"),
    ],
)
def test_unusual_distributions_find_what_normal_ones_hide(session, reference, candidate):
    forward = "class Model(nn.Module):\n    def forward(self, x):\n        return "
    problem = problem_of(forward + reference, tensor(16, 16))
    verdict = evaluate(session, problem, forward + candidate).verdict
    assert (verdict.status, verdict.findings[0].rule) == ("incorrect_values", "values.mismatch")


DIES = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        import os, pathlib, sys
        self.folder = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"])
        self.number = len(list(self.folder.glob("process*")))
        (self.folder / f"process{{self.number}}").touch()
        self.is_timed = lambda: any(f.f_code.co_name == "batch" for f in self.frames(sys))
        self.may_die(None)

    def frames(self, sys):
        frame = sys._getframe()
        while frame is not None:
            yield frame
            frame = frame.f_back

    def may_die(self, x):
        if {when}:
            __import__("os").kill(__import__("os").getpid(), 9)

    def forward(self, x):
        self.may_die(x)
        return x.sin()
"""
"""Its processes are numbered: that of its state, two of its answers, that in float64, then timed
ones."""


@pytest.mark.parametrize(
    ("when", "status", "rule"),
    [
        ("self.is_timed() and self.number == 4", "passed", None),
        ("self.is_timed() and self.number == 5", "passed", None),
        ("self.is_timed() and self.number >= 4", "inconclusive", "reference.died"),
    ],
)
def test_a_candidate_is_not_accused_of_a_reference_that_dies_when_timed(
    session, clock, when, status, rule
):
    problem = problem_of(DIES.format(when=when), tensor(64, 64))
    candidate = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.sin(x)\n"
    evaluation = evaluate(session, problem, candidate)
    if status == "passed":
        assert passes(evaluation.verdict), evaluation.verdict
        assert bool(evaluation.measurements) is (evaluation.verdict.status == "passed")
        return
    assert evaluation.verdict.status == status, evaluation.verdict
    assert [finding.rule for finding in evaluation.verdict.findings[:1]] == [rule]
    assert not evaluation.measurements


@pytest.mark.parametrize(
    "when",
    [
        "self.number == 0",
        "x is not None and self.number == 1",
        "x is not None and self.number == 2",
        "x is not None and self.number == 2 and len(x) < 64",
        "x is not None and self.number == 3",
    ],
)
def test_nothing_is_unknown_of_a_reference_that_was_killed_once(session, when):
    problem = problem_of(DIES.format(when=when), tensor(64, 64))
    verdict = session.check(problem)
    assert (verdict.status, verdict.findings) == ("passed", ())
    forward = "class Model(nn.Module):\n    def forward(self, x):\n        return "
    special = forward + "x.sin() * (len(x) == 64)"
    found = evaluate(session, problem, special).verdict
    assert [finding.rule for finding in found.findings] == ["shape.specialized"]


@pytest.mark.parametrize(
    ("when", "status"),
    [
        ("x is not None and len(x) < 64", "passed"),  # as one that raises there
        ("x is not None", "invalid_reference"),
    ],
)
def test_a_reference_that_dies_again_does_so_on_its_own_account(session, when, status):
    verdict = session.check(problem_of(DIES.format(when=when), tensor(64, 64)))
    assert verdict.status == status, verdict
    if status != "passed":
        assert verdict.findings[0].rule == "reference.died"


BUILDS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        import os, pathlib
        built = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "kernel"
        if built.exists():
            assert built.read_text() == "{mine}", "what another program built"
        else:
            built.write_text("{mine}")
            if "{slow}":
                __import__("time").sleep({slow})

    def forward(self, x):
        return x.sin()
"""


@pytest.mark.times
def test_what_a_program_builds_is_there_for_its_next_runner_and_for_no_other_program(session):
    problem = problem_of(BUILDS.format(mine="reference", slow=0), tensor(64, 64))
    session.check(problem)
    evaluation = evaluate(session, problem, BUILDS.format(mine="candidate", slow=3))
    assert evaluation.verdict.status in ("passed", "inconclusive"), evaluation.verdict
    assert evaluation.elapsed_s < 11, "it built only once"


RENAMED = """
class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.projection = nn.Linear(d, d)

    def forward(self, x):
        return {forward}
"""


MASKED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {first}
        self.fc = nn.Linear(16, 16)
        {last}

    def forward(self, x):
        {forward}
"""
WITH_A_MASK = {
    "first": "",
    "last": 'self.register_buffer("bias", torch.tril(torch.ones(8, 8)))',
    "forward": "return self.bias @ self.fc(x)",
}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    ("new", "status"),
    [
        ({"last": "", "forward": "return torch.cumsum(self.fc(x), 0)"}, "passed"),
        ({"first": "self.gain = nn.Parameter(torch.ones(16))"}, "passed"),
        ({"first": "self.extra = nn.Linear(3, 5)"}, "passed"),
        ({"last": "", "forward": "return 2 * torch.cumsum(self.fc(x), 0)"}, "incorrect_values"),
    ],
    ids=["a buffer less", "a parameter more", "a layer more, drawn before", "and other values"],
)
def test_what_both_share_is_copied_where_trees_are_compared(
    device, mode, new, status, kept_verifiers
):
    problem = problem_of(MASKED.format(**WITH_A_MASK), tensor(8, 16), mode=mode)
    text = MASKED.format(**{**WITH_A_MASK, **new})
    config = msgspec.structs.replace(QUICK, weights="shared")
    with Session(config, device=device) as session:
        verdict = evaluate(session, problem, text).verdict
    assert verdict.status == status, verdict
    if status == "passed":
        [found] = [one for one in verdict.findings if one.rule == "state.keys"]
        num_shared = 2 if not new.get("last", "x") else 3
        assert f"verified with {num_shared} weights and buffers that both have" in found.message


@pytest.mark.parametrize(
    ("forward", "status", "rule"),
    [
        ("self.projection(x)", "passed", "state.keys"),
        ("self.projection(x) + 1", "runtime_error", "state.keys"),
        ("self.projection(x)[:, :4]", "incorrect_shape", "output.shape"),
    ],
)
def test_other_parameters_are_compared_under_one_seed_where_that_is_asked_for(
    device, forward, status, rule, kept_verifiers
):
    problem = problem_of(linear("self.fc(x)"), tensor(8, 16))
    config = msgspec.structs.replace(QUICK, weights="seed")
    with Session(config, device=device) as session:
        verdict = evaluate(session, problem, RENAMED.format(forward=forward)).verdict
        same = evaluate(session, problem, linear("self.fc(x) * 1.0")).verdict
    assert verdict.status == status, verdict
    assert rule in {finding.rule for finding in verdict.findings}
    assert "state.keys" not in {finding.rule for finding in same.findings}


DISTILLED = """
class Model(nn.Module):
    def forward(self, x, z):
        return {loss} * 4
"""


def distilled(loss: str) -> str:
    return DISTILLED.format(loss=loss)


@pytest.mark.parametrize(
    ("loss", "is_right"),
    [
        ("F.kl_div(a, b, reduction='batchmean', log_target=True)", True),
        ("F.kl_div(a, b, reduction='batchmean', log_target=True) * 1.2", False),
        ("-(b.exp() * a).sum(-1).mean()", False),
    ],
    ids=["log", "scaled", "without entropy"],
)
def test_a_loss_in_bfloat16_may_be_off_by_what_rounding_does_to_it(session, loss, is_right):
    """The difference of two logarithms, each of which is rounded by a hundredth."""
    before = "a, b = (x / 2).log_softmax(-1), (z / 2).log_softmax(-1)\n        return"
    source = distilled("((z / 2).softmax(-1) * ((z / 2).softmax(-1).log() - a)).sum(-1).mean()")
    source = source.replace("return", before)
    args = [tensor(64, 100, dtype="bfloat16", requires_grad=True) for _ in range(2)]
    problem = problem_of(source, *args, mode="train")
    candidate = distilled(loss).replace("return", before)
    evaluation = evaluate(session, problem, candidate)
    wanted = "passed" if is_right else "incorrect_values"
    assert evaluation.verdict.status == wanted, evaluation.verdict
