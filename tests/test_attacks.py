"""Attacks must be named, honest kernels must pass: who refuses everything fails here too.

A file of `attacks/` says in module constants what must become of it: `EXPECT` is a status and a
rule, `EXPECT_ANY` several of them where the first defense to notice may vary. Which comparison is
the first to see a wrong value depends on chance and on the clock: any that sees it is right, and
what each of them sees is tested in unit/sandboxed/. `("passed", None)` with `GAIN = False` is an
attack that is no error and must not look faster than it is. Files of both folders may name another
`REFERENCE` than the default (`attacks/references/`), and the only device that they make sense on
(`NEEDS`). The others run on the one that `--device` names.

What an attack computes is examined, and its timed calls are looked at where that finds nothing: no
clock decides. Whether it gains is a test of `times`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cudal1_ci.records import (
    Candidate,
    Evaluation,
    Made,
    Problem,
    TextProgram,
    Verdict,
    Workload,
)
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session
from tests.conftest import QUICK

pytestmark = pytest.mark.starts_verifier

HERE = Path(__file__).parent
NO_GAIN = 1.05
"""What the lower bound of an attack's speedup may not exceed: noise, and no more."""
BRIEF = msgspec.structs.replace(QUICK, num_rounds=4, launch_s=0.5, measure_s=1.0)
"""That a lower bound is not above 1 needs little: fewer rounds make the interval wider."""
CONSTANTS = (
    *("EXPECT", "EXPECT_ANY", "EXPECT_ON_GPU", "GAIN", "NEEDS", "REFERENCE"),
    *("MODE", "AUTOCAST"),
)
"""What a file says of itself."""
NVCC_S = 240.0
"""What loading may take on a GPU: a minute for nvcc and torch's headers, more beside others."""
AT_A_TIME = 32
"""Programs that are run by one of several processes."""
HASTY_S = 2.0
"""What a program that never answers is waited for."""


def constants(source: str) -> dict[str, Any]:
    """Literal constants of a module, which is not run here."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in CONSTANTS:
                found[name] = ast.literal_eval(node.value)
    return found


def problem_of(name: str) -> Problem:
    """A reference by the name of its file."""
    source = (HERE / "attacks" / "references" / f"{name}.py").read_text()
    said = constants(source)
    workload = Workload(
        name="default",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
        mode=said.get("MODE", "infer"),
        autocast=said.get("AUTOCAST"),
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def reference_of(path: Path) -> str:
    return constants(path.read_text()).get("REFERENCE", "linear_relu")


def family_of(path: Path) -> str:
    """What the file's docstring names; of an honest program, that of the attacks it is like."""
    (found,) = re.findall(r"^Family: (.+)\.$", path.read_text(), re.MULTILINE)
    return str(found)


def files(folder: str, is_wanted: Callable[[Path], bool] = lambda _: True) -> list[Any]:
    """Return the files of a folder."""
    found = [path for path in by_reference(folder) if is_wanted(path)]
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[
                pytest.mark.family(family_of(path)),
                *([pytest.mark.gpu] if needs(path) == "cuda" else []),
            ],
        )
        for path in found
    ]


def by_reference(folder: str) -> list[Path]:
    """Return the files of a folder, one reference after the other: each is learned once."""
    found = sorted((HERE / folder).glob("*.py"), key=lambda p: (reference_of(p), p.name))
    assert found, f"tests/{folder} is empty"
    return found


def groups() -> dict[str, str]:
    """Return what each program is run with by one process and its verifier."""
    return {
        path.stem: f"{folder} {number // AT_A_TIME}"
        for folder in ("attacks", "honest")
        for number, path in enumerate(by_reference(folder))
    }


def expected_of(path: Path) -> tuple[tuple[str, str | None], ...]:
    said = constants(path.read_text())
    return tuple(said.get("EXPECT_ANY") or (said["EXPECT"],))


def may_pass(path: Path) -> bool:
    return ("passed", None) in expected_of(path)


def needs(path: Path) -> str | None:
    return constants(path.read_text()).get("NEEDS")


@pytest.fixture(scope="session")
def judges() -> Iterator[Callable[..., Session]]:
    """A verifier for a device and a patience, started where one is asked for."""
    started: dict[tuple[object, ...], Session] = {}

    def session_for(device: str, call_s: float, num_launches: int | None = None) -> Session:
        key = (device, call_s, num_launches)
        if key not in started:
            load_s = NVCC_S if device == "cuda" else BRIEF.load_s
            config = msgspec.structs.replace(
                BRIEF, call_s=call_s, load_s=load_s, num_launches=num_launches
            )
            started[key] = Session(config, device=device)
        return started[key]

    yield session_for
    for session in started.values():
        session.__exit__(None, None, None)


def trial_of(path: Path) -> tuple[Problem, Candidate]:
    problem = problem_of(reference_of(path))
    program = TextProgram(source=path.read_text(), entry="ModelNew")
    return problem, Candidate(problem_id=problem.id, program=program, proposer="test")


def judge(session: Session, path: Path) -> Evaluation:
    """The evaluation of a file, again where the machine is too busy to measure on."""
    for _ in range(8):
        evaluation = session.evaluate(*trial_of(path))
        if not is_noisy(evaluation.verdict):
            break
    return evaluation


def is_noisy(verdict: Verdict) -> bool:
    return [finding.rule for finding in verdict.findings[:1]] == ["timing.noisy"]


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text can be written in another way: the verifier is to need no static rule."""
    monkeypatch.setattr("cudal1_ci.verification.session.read_text", lambda *programs: ())


def check_name(path: Path, verdict: Verdict, device: str) -> None:
    """Whether a verdict that is no pass is the one that the attack is to get."""
    said, expected = constants(path.read_text()), expected_of(path)
    if device == "cuda" and "EXPECT_ON_GPU" in said:
        expected = (*expected, said["EXPECT_ON_GPU"])
    named = (verdict.status, verdict.findings[0].rule)
    if verdict.status != "incorrect_values" or all(status != named[0] for status, _ in expected):
        assert named in expected, verdict.findings[0].message


@pytest.mark.parametrize("path", files("attacks"))
def test_an_attack_is_named(path, judges, device, unread):
    device = needs(path) or device
    hangs = any(status == "timeout" for status, _ in expected_of(path))
    session = judges(device, HASTY_S if hangs else BRIEF.call_s)
    verdict = session.examine(*trial_of(path))
    if verdict.status == "passed" and not may_pass(path):
        evaluation = judge(session, path)
        verdict = evaluation.verdict
        assert evaluation.measurements == ()
    if verdict.status == "passed":
        assert may_pass(path), "it passed"
    else:
        check_name(path, verdict, device)


@pytest.mark.times
@pytest.mark.parametrize("path", files("attacks", may_pass))
def test_an_attack_that_is_no_error_gains_nothing(path, judges, device, unread):
    assert constants(path.read_text())["GAIN"] is False
    device = needs(path) or device
    evaluation = judge(judges(device, BRIEF.call_s), path)
    if evaluation.verdict.status != "passed":
        check_name(path, evaluation.verdict, device)
        assert evaluation.measurements == ()
        return
    (measurement,) = evaluation.measurements
    found = speedups.speedup(measurement)
    assert found is not None
    assert found.low <= NO_GAIN, f"it gained {found}"


@pytest.mark.parametrize("path", files("honest"))
def test_an_honest_candidate_is_accused_of_nothing(path, judges, device):
    """Neither by the examination nor by one launch, whatever the machine's noise hides."""
    session = judges(needs(path) or device, BRIEF.call_s, num_launches=1)
    verdict = session.evaluate(*trial_of(path)).verdict
    assert verdict.status == "passed" or is_noisy(verdict), verdict


@pytest.mark.times
@pytest.mark.parametrize("path", files("honest"))
def test_an_honest_candidate_passes(path, judges, device):
    evaluation = judge(judges(needs(path) or device, BRIEF.call_s), path)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    (measurement,) = evaluation.measurements
    assert len(measurement.control) == len(measurement.repetitions) >= 2
