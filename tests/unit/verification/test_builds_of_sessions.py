"""Programs that compile C++ before real judges: built once, by whoever comes first.

The texts leave torch's headers out, so that a build takes half a second; one of them, marked slow,
is as people write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1_ci.processes import lock
from cudal1_ci.records import (
    Call,
    Candidate,
    Evaluation,
    OverlayFile,
    Problem,
    TensorSpec,
    TextProgram,
    TreeProgram,
    Workload,
)
from cudal1_ci.verification import BuildsConfig, Session, TrialConfig

pytestmark = [pytest.mark.starts_verifier, pytest.mark.compiles]

QUICK = TrialConfig(call_s=20, load_s=120, num_rounds=3, measure_s=0.5)
REFERENCE = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return 2 * x
"""
EXTENSION = """
import ctypes, inspect, os
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = '''
extern "C" void scale(const float *from, float *to, long n) {{
    for (long i = 0; i < n; ++i) to[i] = {factor} * from[i];
}}
'''
# torch 2.6 knows no such argument, and takes longer.
known = "no_implicit_headers" in inspect.signature(load_inline).parameters
QUICKLY = {{"no_implicit_headers": True}} if known else {{}}
load_inline("scale", cpp_sources=CPP, is_python_module=False, **QUICKLY)
scale = ctypes.CDLL(os.environ["TORCH_EXTENSIONS_DIR"] + "/scale/scale.so").scale


class Model(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        places = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        scale(*places, ctypes.c_long(x.numel()))
        return y
"""
AS_PEOPLE_WRITE_IT = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = '''
torch::Tensor scale(torch::Tensor x) {{
    return {factor} * x;
}}
'''
extension = load_inline(name="scale", cpp_sources=CPP, functions=["scale"])


class Model(nn.Module):
    def forward(self, x):
        return extension.scale(x)
"""


def problem() -> Problem:
    tensor = TensorSpec(shape=(64, 64), dtype="float32")
    workload = Workload(name="w", provenance="declared", init=Call(), call=Call(args=(tensor,)))
    program = TextProgram(source=REFERENCE, entry="Model")
    return Problem(reference=program, workloads=(workload,))


def candidate(factor: str = "2", text: str = EXTENSION) -> Candidate:
    program = TextProgram(source=text.format(factor=factor), entry="Model")
    return Candidate(problem_id=problem().id, program=program, proposer="test")


Verifier = Callable[..., list[Evaluation]]


@pytest.fixture(autouse=True)
def lock_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured here need not be right, so nobody has to wait for it."""
    monkeypatch.setattr(lock, "FOLDER", tmp_path)


@pytest.fixture
def judged(tmp_path: Path, device: str) -> Verifier:
    """Evaluations of candidates in a session of its own, in their order."""

    def judge(*candidates: Candidate, ahead: bool = False) -> list[Evaluation]:
        builds = BuildsConfig(folder=str(tmp_path / "store"))
        found: dict[str, Evaluation] = {}
        with Session(QUICK, device=device, builds=builds) as session:
            if ahead:
                session.build_ahead(problem(), candidates)
            for one in session.in_turn(candidates):
                found[one.id] = session.evaluate(problem(), one)
        return [found[one.id] for one in candidates]

    return judge


def status(evaluation: Evaluation) -> str:
    """What was found of the answers: a busy machine may be no place to time them."""
    found = evaluation.verdict.status
    return "passed" if found == "inconclusive" else found


def objects(store: Path) -> dict[str, tuple[int, int]]:
    """Every object file that was kept, with the time at which it was made."""
    return {
        str(path.relative_to(store)): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in store.rglob("*.o")
    }


def times_built(store: Path) -> int:
    """ninja notes each of its steps."""
    logs = store.rglob(".ninja_log")
    return sum(log.read_text().count("\tmain.o\t") for log in logs)


def test_an_extension_is_built_once_for_check_launches_and_the_next_session(judged, tmp_path):
    (first,) = judged(candidate())
    assert status(first) == "passed", first.verdict
    made = objects(tmp_path / "store")
    assert len(made) == 1
    (second,) = judged(candidate())
    assert status(second) == "passed", second.verdict
    assert objects(tmp_path / "store") == made
    assert times_built(tmp_path / "store") == 1


def test_built_ahead_candidates_get_the_verdicts_that_they_get_without(judged, tmp_path):
    several = [candidate("2"), candidate("3"), candidate("two"), candidate("4")]
    ahead = judged(*several, ahead=True)
    expected = ["passed", "incorrect_values", "compile_error", "incorrect_values"]
    assert [status(one) for one in ahead] == expected
    assert times_built(tmp_path / "store") == 3, "each that compiles once, by the builder"
    alone = judged(*several)
    assert [status(one) for one in alone] == expected
    assert ahead[2].verdict == alone[2].verdict
    finding = ahead[2].verdict.findings[0]
    assert (finding.rule, finding.line) == ("program.compile", 9)
    assert re.match("main.cpp:[34]:", finding.message)  # in torch 2.6 a line later
    assert "error: ‘two’ was not declared in this scope" in finding.message
    assert finding.evidence is not None
    assert finding.evidence.splitlines()[1].endswith("to[i] = two * from[i];")
    for left_out in ("FAILED", "ninja", "/store/", "Traceback"):
        assert left_out not in finding.evidence + ahead[2].verdict.log


def test_nothing_is_kept_where_that_is_switched_off(tmp_path, device):
    builds = BuildsConfig(folder=str(tmp_path / "store"), keep=False)
    with Session(QUICK, device=device, builds=builds) as session:
        session.build_ahead(problem(), [candidate("3")])
        assert status(session.evaluate(problem(), candidate("3"))) == "incorrect_values"
    assert not (tmp_path / "store").exists()


def test_a_candidate_in_a_checkout_is_built_ahead(tmp_path, device):
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "m.py").write_text(REFERENCE)
    program = TreeProgram(root=str(root), import_root=".", import_path="m:Model", digest="d")
    of_tree = Problem(reference=program, workloads=problem().workloads)
    changed = TreeProgram(
        root=str(root),
        import_root=".",
        import_path="m:Model",
        digest="d",
        overlay=(OverlayFile(path="m.py", text=EXTENSION.format(factor="3")),),
    )
    one = Candidate(problem_id=of_tree.id, program=changed, proposer="test")
    builds = BuildsConfig(folder=str(tmp_path / "store"))
    with Session(QUICK, device=device, builds=builds) as session:
        session.build_ahead(of_tree, [one])
        assert status(session.evaluate(of_tree, one)) == "incorrect_values"
    assert times_built(tmp_path / "store") == 1


@pytest.mark.slow
def test_what_people_write_is_built_once_and_its_errors_are_told(judged, tmp_path):
    right, broken = candidate("2", AS_PEOPLE_WRITE_IT), candidate("two", AS_PEOPLE_WRITE_IT)
    found = judged(right, broken, ahead=True)
    assert [status(one) for one in found] == ["passed", "compile_error"]
    finding = found[1].verdict.findings[0]
    assert "‘two’ was not declared in this scope" in finding.message
    assert len(finding.evidence or "") < 2000
    made = objects(tmp_path / "store")
    (again,) = judged(right)
    assert status(again) == "passed"
    assert objects(tmp_path / "store") == made
