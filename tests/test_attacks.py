"""Attacks must be named, honest kernels must pass: who refuses everything fails here too.

A file of `attacks/` says in module constants what must become of it: `EXPECT` is a status and a
rule, `EXPECT_ANY` several of them where the first defense to notice may vary. Which comparison is
the first to see a wrong value depends on chance and on the clock: any that sees it is right, and
what each of them sees is tested in unit/worker/. `("passed", None)` with `GAIN = False` is an
attack that is no error and must not look faster than it is. Files of both folders may name another
`REFERENCE` than the default (`attacks/references/`), and the only device that they make sense on
(`NEEDS`). The others run on the one that `--device` names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cudal1_ci.records import Candidate, Evaluation, Made, Problem, TextProgram, Workload
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session
from tests.conftest import QUICK

HERE = Path(__file__).parent
NO_GAIN = 1.05
"""What the lower bound of an attack's speedup may not exceed: noise, and no more."""
BRIEF = msgspec.structs.replace(QUICK, num_rounds=4, launch_s=0.5, measure_s=1.0)
"""That a lower bound is not above 1 needs little: fewer rounds make the interval wider."""
CONSTANTS = ("EXPECT", "EXPECT_ANY", "EXPECT_ON_GPU", "GAIN", "NEEDS", "REFERENCE", "MODE")
"""What a file says of itself."""
NVCC_S = 240.0
"""What loading may take on a GPU: a minute for nvcc and torch's headers, more beside others."""
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
    workload = Workload(
        name="default",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
        mode=constants(source).get("MODE", "infer"),
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def reference_of(path: Path) -> str:
    return constants(path.read_text()).get("REFERENCE", "linear_relu")


def files(folder: str) -> list[Any]:
    """The files of a folder, one reference after the other, as each is learned anew."""
    found = sorted((HERE / folder).glob("*.py"), key=lambda p: (reference_of(p), p.name))
    assert found, f"tests/{folder} is empty"
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.gpu] if needs(path) == "cuda" else [])
        for path in found
    ]


def needs(path: Path) -> str | None:
    return constants(path.read_text()).get("NEEDS")


@pytest.fixture(scope="session")
def judges() -> Iterator[Callable[..., Session]]:
    """A judge for a device and a patience, started where one is asked for."""
    started: dict[tuple[str, float], Session] = {}

    def session_for(device: str, call_s: float) -> Session:
        if (device, call_s) not in started:
            load_s = NVCC_S if device == "cuda" else BRIEF.load_s
            config = msgspec.structs.replace(BRIEF, call_s=call_s, load_s=load_s)
            started[device, call_s] = Session(config, device=device)
        return started[device, call_s]

    yield session_for
    for session in started.values():
        session.__exit__(None, None, None)


def judge(
    judges: Callable[..., Session], path: Path, device: str = "cpu", call_s: float = BRIEF.call_s
) -> Evaluation:
    """The evaluation of a file, again where the machine is too busy to measure on."""
    problem = problem_of(reference_of(path))
    program = TextProgram(source=path.read_text(), entry="ModelNew")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    for _ in range(8):
        evaluation = judges(device, call_s).evaluate(problem, candidate)
        if [f.rule for f in evaluation.verdict.findings[:1]] != ["timing.noisy"]:
            break
    return evaluation


@pytest.mark.parametrize("path", files("attacks"))
def test_an_attack_is_named_and_gets_no_speedup(path, judges, device, monkeypatch):
    # A text can be written in another way: what is tested is that the judge needs no static rule.
    monkeypatch.setattr("cudal1_ci.verification.session.screen", lambda *programs: ())
    said = constants(path.read_text())
    expected = said.get("EXPECT_ANY") or (said["EXPECT"],)
    device = needs(path) or device
    if device == "cuda" and "EXPECT_ON_GPU" in said:
        expected = (*expected, said["EXPECT_ON_GPU"])
    hangs = any(status == "timeout" for status, _ in expected)
    evaluation = judge(judges, path, device, HASTY_S if hangs else BRIEF.call_s)
    verdict = evaluation.verdict
    if verdict.status != "passed":
        named = (verdict.status, verdict.findings[0].rule)
        if verdict.status != "incorrect_values" or all(
            status != named[0] for status, _ in expected
        ):
            assert named in expected, verdict.findings[0].message
        assert evaluation.measurements == ()
        return
    assert ("passed", None) in expected, "it passed"
    assert said["GAIN"] is False
    (measurement,) = evaluation.measurements
    found = speedups.speedup(measurement)
    assert found is not None
    assert found.low <= NO_GAIN, f"it gained {found}"


@pytest.mark.parametrize("path", files("honest"))
def test_an_honest_candidate_passes(path, judges, device):
    evaluation = judge(judges, path, needs(path) or device)
    assert evaluation.verdict.status == "passed", evaluation.verdict
    (measurement,) = evaluation.measurements
    assert len(measurement.control) == len(measurement.repetitions) >= 2
