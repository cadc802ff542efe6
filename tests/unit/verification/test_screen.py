"""Every rule sees what it is for, and not what only looks like it."""

from __future__ import annotations

import ast
import functools
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudal1_ci.records import (
    Candidate,
    Device,
    OverlayFile,
    Problem,
    TextProgram,
    TreeProgram,
    Verdict,
)
from cudal1_ci.sandboxed.wire import verdicts
from cudal1_ci.sandboxed.wire.verifier import Verified
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.static_rules import RULES, convictions, screen, screened_text
from tests.unit.verification.screen_texts import CUDA, JOINED, PYTHON, STREAM, UNJOINED, candidate

TESTS = Path(__file__).parents[2]
REFERENCE = TextProgram(source="class Model: pass\n", entry="Model")
CONVICTING = {
    "clock_patched",
    "synchronize_patched",
    "comparison_patched",
    "library_patched",
    "code_replaced",
    "call_replaced",
    "caller_read",
    "object_scan",
    "decoded_code",
    "process_memory",
    "package_install",
    "pointer_cache",
    "lazy_output",
    "cuda_timer_forged",
    "cuda_process_memory",
}


def rules_in(source: str, reference: TextProgram = REFERENCE) -> set[str]:
    found = screen(TextProgram(source=source, entry="ModelNew"), reference)
    return {finding.rule.removeprefix("static.") for finding in found}


def in_python(cuda: str) -> str:
    """A Python text that compiles a CUDA text."""
    head = "from torch.utils.cpp_extension import load_inline\n"
    return f"{head}SOURCE = r'''\n{cuda}'''\nload_inline('k', SOURCE)\n"


@pytest.mark.parametrize(("rule", "bad", "good"), PYTHON, ids=lambda value: value[:24])
def test_a_rule_sees_its_text_and_not_the_one_that_looks_like_it(rule, bad, good):
    assert rule in rules_in(candidate(bad))
    assert rule not in rules_in(candidate(good))
    ast.parse(candidate(good))


@pytest.mark.parametrize(("rule", "bad", "good"), CUDA, ids=lambda value: value[:24])
def test_a_cuda_rule_sees_strings_and_files_alike(rule, bad, good):
    assert rule in rules_in(in_python(bad))
    assert rule not in rules_in(in_python(good))
    assert rule in {f.rule.removeprefix("static.") for f in screened_text(bad, "k.cu", "")}
    assert rule not in {f.rule.removeprefix("static.") for f in screened_text(good, "k.cu", "")}


@pytest.mark.parametrize(
    "hidden",
    [
        # In UTF-7 the comment ends with the line that `+AAo-` is.
        "# -*- coding: utf-7 -*-\n# A comment.+AAo-import time+AAo-time.perf_counter +AD0- print\n",
        "\N{BYTE ORDER MARK}import time\ntime.perf_counter = print\n",
    ],
)
def test_a_text_is_read_as_python_reads_it_from_a_file(hidden, tmp_path):
    module = tmp_path / "program.py"
    module.write_bytes(f"{hidden}assert time.perf_counter is print\n".encode())
    subprocess.run([sys.executable, str(module)], check=True)
    assert "clock_patched" in rules_in(hidden)


@pytest.mark.parametrize("name", ["latin-1", "utf-8", "ascii"])
def test_an_encoding_that_hides_nothing_is_no_finding(name):
    assert rules_in(f"# -*- coding: {name} -*-\nimport torch\n") == set()


def test_no_look_alike_is_convicted():
    for rule, _, good in PYTHON:
        found = screen(TextProgram(source=candidate(good), entry="ModelNew"), REFERENCE)
        assert not [f for f in convictions(found) if f.rule == f"static.{rule}"], (rule, good)


@pytest.mark.parametrize("body", UNJOINED)
def test_work_that_nobody_waits_for_is_seen(body):
    assert "side_stream" in rules_in(candidate(STREAM + body))


@pytest.mark.parametrize("body", JOINED)
def test_work_that_is_waited_for_is_not(body):
    assert "side_stream" not in rules_in(candidate(STREAM + body))


def test_a_helper_may_wait_for_its_caller():
    text = candidate(
        STREAM + "with torch.cuda.stream(self.s):\n    out = self.fc(x)\nself.meet()\nreturn out"
    )
    text += "\n    def meet(self):\n        torch.cuda.current_stream().wait_stream(self.s)\n"
    assert "side_stream" not in rules_in(text)
    assert "side_stream" in rules_in(text.replace("wait_stream(self.s)", "query()"))


def test_every_rule_has_a_pair_of_texts():
    tried = {f"static.{rule}" for rule, _, _ in (*PYTHON, *CUDA)}
    assert tried == set(RULES)


def test_these_rules_convict_and_no_others():
    assert {
        name.removeprefix("static.") for name, rule in RULES.items() if rule.convicts
    } == CONVICTING


def test_convictions_come_first():
    found = screen(
        TextProgram(
            source="import time\nx = torch.empty(1).half()\ntime.time = None\n", entry="ModelNew"
        ),
        REFERENCE,
    )
    assert [f.rule for f in convictions(found)] == ["static.clock_patched"]
    assert found[0].rule == "static.clock_patched"
    assert (found[0].line, found[0].evidence) == (3, "time.time = None")


def test_evidence_is_the_line_and_no_more():
    found = screen(TextProgram(source="x = y.half() + '" + "1" * 500 + "'", entry=""), REFERENCE)
    assert len(found[0].evidence) == 160


def test_what_the_reference_does_too_is_no_finding():
    line = "torch.backends.cudnn.benchmark = True"
    reference = TextProgram(source=f"import torch\nif True:\n    {line}\n", entry="Model")
    assert "global_setting" in rules_in(f"import torch\n{line}\n")
    assert "global_setting" not in rules_in(f"import torch\n{line}\n", reference)
    assert "global_setting" in rules_in("import torch\ntorch.set_num_threads(9)\n", reference)


@pytest.fixture
def tree(tmp_path):
    """A candidate's tree by the texts before and after of one file."""

    def made(before: str | None, after: str, path: str = "pkg/ops.py") -> TreeProgram:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if before is not None:
            file.write_text(before)
        digest = None if before is None else "0" * 16
        return TreeProgram(
            root=str(tmp_path),
            import_root=".",
            import_path="pkg.ops:run",
            digest="0" * 16,
            overlay=(OverlayFile(path=path, text=after, base_digest=digest),),
        )

    return made


def test_what_the_checkout_does_already_is_no_finding(tree):
    before = "import time\ntime.time = None\n\n\ndef run(x):\n    return x\n"
    after = before.replace("return x", "return x + 0") + "\nx = y.half()\n"
    program = tree(before, after)
    assert [f.rule for f in screen(program, program)] == []
    reference = TreeProgram(
        root=program.root, import_root=".", import_path="pkg.ops:run", digest="0" * 16
    )
    assert [f.rule for f in screen(program, reference)] == ["static.precision"]


def test_a_wait_that_is_taken_away_is_a_finding(tree):
    body = (
        "import torch\ns = torch.cuda.Stream()\ndef run(x):\n    with torch.cuda.stream(s):\n"
        "        y = x * 2\n    s.synchronize()\n    return y\n"
    )
    program = tree(body, body.replace("    s.synchronize()\n", ""))
    reference = TreeProgram(
        root=program.root, import_root=".", import_path="pkg.ops:run", digest="0" * 16
    )
    assert [f.rule for f in screen(program, reference)] == ["static.side_stream"]


def test_new_files_and_cuda_files_are_read(tree):
    program = tree(None, "void f() { mprotect(p, 1, 7); }", "csrc/k.cu")
    reference = TreeProgram(
        root=program.root, import_root=".", import_path="pkg.ops:run", digest="0" * 16
    )
    assert [f.rule for f in screen(program, reference)] == ["static.cuda_process_memory"]


def test_a_path_out_of_the_checkout_is_not_read(tree, tmp_path):
    outside = tmp_path.parent / "outside.py"
    outside.write_text("x = y.half()\n")
    program = tree(None, "x = y.half()\n", "ops.py")
    file = OverlayFile(path="../outside.py", text="x = y.half()\n", base_digest="0" * 16)
    program = TreeProgram(
        root=program.root, import_root=".", import_path="ops:run", digest="0", overlay=(file,)
    )
    assert [f.rule for f in screen(program, REFERENCE)] == ["static.precision"]


# --- in a session ----------------------------------------------------------------------------


def evaluated(monkeypatch, source: str, reference: str = "passed"):
    """An evaluation whose judge says what it is told, and what it was asked."""
    asked: list[str] = []

    def ask(self, request, timeout_s):
        asked.append(request.op)
        note = verdicts.Finding(rule="values.note", message="judged")
        return Verified(verdict=verdicts.Verdict(status="passed", findings=(note,)))

    device = Device(kind="cpu", name="none")
    monkeypatch.setattr(Session, "check", lambda self, problem, most_s: Verdict(status=reference))
    monkeypatch.setattr(Session, "device", lambda self: device)
    monkeypatch.setattr(Session, "_ask", ask)
    monkeypatch.setattr(
        Session, "_measure", lambda self, config, workloads, verdict, goes_on: (verdict, ())
    )
    problem = Problem(reference=REFERENCE, workloads=())
    program = TextProgram(source=source, entry="ModelNew")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="test")
    return Session(TrialConfig()).evaluate(problem, candidate).verdict, asked


def test_a_convicted_candidate_is_not_run(monkeypatch):
    verdict, asked = evaluated(monkeypatch, "import time\nx = y.half()\ntime.time = None\n")
    assert verdict.status == "reward_hack"
    rules = [finding.rule for finding in verdict.findings]
    assert rules == ["static.clock_patched", "static.precision"]
    assert asked == []


def test_a_finding_stands_beside_what_the_judge_says(monkeypatch):
    verdict, asked = evaluated(monkeypatch, "x = y.half()\n")
    assert verdict.status == "passed"
    assert [f.rule for f in verdict.findings] == ["values.note", "static.precision"]
    assert asked == ["examine"]


def test_a_reference_that_cannot_be_judged_convicts_nobody(monkeypatch):
    verdict, asked = evaluated(monkeypatch, "import time\ntime.time = None\n", "invalid_reference")
    assert verdict.status == "invalid_reference"
    assert [f.rule for f in verdict.findings] == ["static.clock_patched"]
    assert asked == []


# --- real texts -------------------------------------------------------------------------------


def program_of(path: Path) -> tuple[TextProgram, TextProgram]:
    """A file of the corpus and its reference."""
    source = path.read_text()
    names = {
        node.targets[0].id: node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    name = names.get("REFERENCE", "linear_relu")
    place = TESTS / "attacks" / "references" / f"{name}.py"
    reference = place.read_text() if place.exists() else REFERENCE.source
    return TextProgram(source=source, entry="ModelNew"), TextProgram(
        source=reference, entry="Model"
    )


HONEST = sorted((TESTS / "honest").glob("*.py"))
EXPLOITS = sorted((TESTS / "attacks").glob("*.py"))


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_no_honest_candidate_is_convicted(path):
    assert convictions(screen(*program_of(path))) == []


def test_who_is_convicted_is_an_attack():
    """Every file there declares what must become of it; never that it passes with a gain."""
    convicted = [path for path in EXPLOITS if convictions(screen(*program_of(path)))]
    assert len(convicted) >= 4
    for path in convicted:
        names = {
            target.id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert names & {"EXPECT", "EXPECT_ANY"}, path


# --- any text ---------------------------------------------------------------------------------

SAMPLES = [candidate(bad) for _, bad, _ in PYTHON] + [in_python(bad) for _, bad, _ in CUDA]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SAMPLES), st.integers(0, 2**32))
def test_no_change_of_a_text_breaks_the_screen(sample, seed):
    rng = random.Random(seed)
    lines = sample.splitlines(keepends=True)
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(4):
            case 0:
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            case 1 if len(lines) > 1:
                del lines[rng.randrange(len(lines))]
            case 2:
                place = rng.randrange(len(lines))
                at = rng.randrange(len(lines[place]) + 1)
                lines[place] = (
                    lines[place][:at]
                    + chr(rng.choice([0, 39, 40, 123, 0xD800, 955]))
                    + lines[place][at:]
                )
            case 3:
                lines.extend(rng.choice(SAMPLES).splitlines(keepends=True))
    source = "".join(lines)
    for path in ("candidate.py", "kernel.cu"):
        for finding in screened_text(source, path, "ModelNew"):
            assert finding.rule in RULES
            assert finding.line is None or finding.line >= 1


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_no_text_breaks_the_screen(source):
    for path in ("candidate.py", "kernel.cu", "notes.txt"):
        assert {finding.rule for finding in screened_text(source, path, "")} <= set(RULES)


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "(" * 150 + "1" + ")" * 150,
        "x = " + "-" * 900 + "1",
        "x = a" + ".b" * 900,
        "x = 1" + " + 1" * 900,
        "x = " + "f(" * 150 + ")" * 150,
        "if a:\n  pass\n" + "elif b:\n  pass\n" * 900,
        "x = y\ny = x\nx.perf_counter = y.z\n",
        "x = " + "-" * 100_000 + "1",
        "def f():\n" * 1
        + "".join(" " * d + f"if a{d}:\n" for d in range(1, 90))
        + " " * 90
        + "pass\n",
        "x = '\ud800'\n",
        "\x00",
        "",
        "def (",
    ],
    ids=range(13),
)
def test_nesting_and_nonsense_are_survived(source):
    for path in ("candidate.py", "kernel.cu"):
        found = {finding.rule for finding in screened_text(source, path, "ModelNew")}
        assert found <= set(RULES)


@functools.cache
def large_texts(part: int) -> dict[str, str]:
    """Texts of about a megabyte, or of a part of it."""
    unit = candidate(STREAM + JOINED[0])
    branches = "".join(
        f"        if c{i}:\n            s.wait_stream(t)\n" for i in range(15_000 // part)
    )
    return {
        "code": "\n".join([unit] * (1_000_000 // part // len(unit))),
        "data": f"import torch\nTABLE = {list(range(150_000 // part))!r}\n",
        "kernel": in_python(CUDA[0][1] * (2500 // part)),
        "kernels": "\n".join(f"K{i} = r'''{CUDA[0][1]}'''" for i in range(2500 // part)),
        "bad cuda": in_python("__global__ " + "a<b" * (300_000 // part)),
        "streams": candidate(
            STREAM + "s = t = self.s\nwith torch.cuda.stream(s):\n    y = self.fc(x)\nreturn x"
        ).replace("        return x", branches + "        return x"),
        "quotes": in_python('__global__ "' * (80_000 // part)),
        "ifs": in_python("__global__ <<<x>>>" + "if(" * (300_000 // part)),
        "statics": in_python("__global__ " + "static " * (140_000 // part)),
        "names": in_python("__global__ " + "cuda " * (200_000 // part)),
        "launches": in_python("__global__ " + "<<<" * (300_000 // part)),
        "macros": in_python("__global__\n" + "#define A(x) a##x\n" * (50_000 // part)),
        "returns": candidate(
            "===\nself.c = 1\n>>>\n"
            + "if x.data_ptr() == self.p:\n    self.c = f(x)\n    return self.c\n" * (9_000 // part)
        ),
        "braces": "__global__" + "{(" * (400_000 // part),
    }


NAMES = sorted(large_texts(1000))


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_many_pages_is_read_at_once(name):
    """What takes longer than its length grows with would take minutes, on any machine."""
    assert seconds_of(name, 10) < 8


@pytest.mark.times
@pytest.mark.parametrize("name", NAMES)
def test_a_megabyte_is_read_in_seconds(name):
    # Dense Python takes two to three on a machine that does something else too, all else one.
    assert seconds_of(name, 1) < 8


def seconds_of(name: str, part: int) -> float:
    """Of the processor's time."""
    source = large_texts(part)[name]
    path = "kernel.cu" if name == "braces" else "candidate.py"
    started_s = time.process_time()
    list(screened_text(source, path, "ModelNew"))
    return time.process_time() - started_s
