"""What `verify` says of two files, in the names that their owner gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Candidate, Evaluation, Finding, TextProgram, Verdict
from cudal1_ci.verification.verify import candidate_of, text_problem, with_own_names

REFERENCE = "class Model: ...\ndef get_inputs(): ...\n"
COPY = "/tmp/cudal1-ci-0/runners-1abc/r2def/program.py"
BROKEN = "class ModelNew:\n    x = torch.diag)(1)\n"


def judged(source: str, *findings: Finding, status="compile_error", log="") -> Evaluation:
    program = TextProgram(source=source, entry="ModelNew")
    return Evaluation(
        candidate=Candidate(problem_id="p", program=program, proposer="file"),
        verdict=Verdict(status=status, findings=findings, log=log),
    )


def own(evaluation: Evaluation) -> Verdict:
    return with_own_names(evaluation, Path("own/slow.py"), Path("own/fast.py")).verdict


def test_a_reference_that_does_not_parse_is_named_with_line_and_column(tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(BROKEN)
    with pytest.raises(ConfigError) as raised:
        text_problem(path, "infer")
    assert str(raised.value) == (
        f"{path}:2:19: the reference does not parse as Python: unmatched ')'"
    )


def test_a_byte_order_mark_is_skipped_as_python_skips_it(tmp_path):
    plain, marked = tmp_path / "plain.py", tmp_path / "marked.py"
    for path, mark in ((plain, ""), (marked, "\ufeff")):
        path.write_text(mark + REFERENCE, encoding="utf-8")
    problem = text_problem(plain, "infer")
    assert text_problem(marked, "infer").reference == problem.reference
    assert candidate_of(problem, marked) == candidate_of(problem, plain)


def test_a_reference_without_what_it_must_define_is_called_the_reference(tmp_path):
    path = tmp_path / "slow.py"
    path.write_text("")
    with pytest.raises(ConfigError, match="expected a top-level `Model` in the reference"):
        text_problem(path, "infer")


def test_a_candidate_in_the_place_of_the_reference_is_told(tmp_path):
    path = tmp_path / "fast.py"
    path.write_text(REFERENCE.replace("Model", "ModelNew"))
    with pytest.raises(ConfigError, match="the reference comes first"):
        text_problem(path, "infer")


@pytest.mark.parametrize(
    ("parameters", "needed"),
    [
        ("self, dim, heads", "`dim`, `heads`"),
        ("self, dim, heads=4", "`dim`"),
        ("self, /, dim=1, *, heads", "`heads`"),
    ],
)
def test_a_constructor_that_needs_arguments_which_nothing_makes_is_told(
    tmp_path, parameters, needed
):
    path = tmp_path / "slow.py"
    body = f"class Model:\n    def __init__({parameters}): ...\ndef get_inputs(): ...\n"
    path.write_text(body)
    with pytest.raises(ConfigError) as raised:
        text_problem(path, "infer")
    assert f"`Model` takes {needed}; define a top-level `get_init_inputs()`" in str(raised.value)
    path.write_text(body + "def get_init_inputs(): ...\n")
    assert text_problem(path, "infer").workloads[0].init is not None


@pytest.mark.parametrize(
    "parameters", ["self", "self, dim=1", "self, *sizes", "self, *, dim=1", "self, **options"]
)
def test_a_constructor_without_needs_wants_no_arguments(tmp_path, parameters):
    path = tmp_path / "slow.py"
    path.write_text(f"class Model:\n    def __init__({parameters}): ...\ndef get_inputs(): ...\n")
    assert text_problem(path, "infer").reference.entry == "Model"


def test_a_candidate_that_does_not_parse_is_named_with_line_and_column():
    told = Finding(rule="program.import", message="SyntaxError: unmatched ')' (program.py, line 2)")
    log = f"  File \"{COPY}\", line 2\n    x = torch.diag)(1)\nSyntaxError: unmatched ')'\n"
    verdict = own(judged(BROKEN, told, log=log))
    assert verdict.status == "compile_error"
    assert verdict.findings == (
        Finding(
            rule="program.import",
            message="own/fast.py:2:19: the candidate does not parse as Python: unmatched ')'",
            line=2,
        ),
    )
    assert verdict.log.startswith('  File "own/fast.py", line 2\n')


def test_null_bytes_have_no_place(tmp_path):
    path = tmp_path / "fast.py"
    path.write_bytes(b"\xff\xfe\x00")
    problem_file = tmp_path / "slow.py"
    problem_file.write_text(REFERENCE)
    candidate = candidate_of(text_problem(problem_file, "infer"), path)
    told = Finding(rule="program.import", message="SyntaxError: null bytes")
    (finding,) = own(judged(candidate.program.source, told)).findings
    assert finding.message.startswith("own/fast.py: the candidate does not parse as Python: ")
    assert finding.line is None


def test_what_fails_when_a_sound_file_is_imported_stays_what_it_was():
    told = Finding(rule="program.import", message="SyntaxError: invalid syntax (other.py, line 3)")
    verdict = own(judged("import other\n", told))
    assert verdict.findings == (told,)


def test_a_traceback_and_a_warning_name_the_file_whose_copy_ran():
    log = f'Traceback:\n  File "{COPY}", line 3, in forward\n{COPY}:9: UserWarning: slow\n'
    candidate = Finding(rule="program.raised", message="ValueError: no")
    assert own(judged("", candidate, status="runtime_error", log=log)).log == (
        'Traceback:\n  File "own/fast.py", line 3, in forward\nown/fast.py:9: UserWarning: slow\n'
    )
    reference = Finding(rule="reference.raised", message="calling the reference failed: no")
    found = own(judged("", reference, status="invalid_reference", log=log))
    assert 'File "own/slow.py", line 3' in found.log
    assert "own/slow.py:9: UserWarning" in found.log


def test_a_folder_with_blanks_and_a_program_of_the_users_are_kept_apart():
    copy = COPY.replace("/tmp/", "/scratch of me/")
    log = f'  File "{copy}", line 3\n  File "/home/me/net/program.py", line 5\n'
    assert own(judged("", status="runtime_error", log=log)).log == (
        '  File "own/fast.py", line 3\n  File "/home/me/net/program.py", line 5\n'
    )


def test_a_candidate_without_a_class_to_load_is_told_what_it_defines():
    told = Finding(rule="program.import", message="AttributeError: the text defines no `ModelNew`")
    verdict = own(judged("class Modle: ...\n", told, log="Traceback of the loader"))
    assert verdict.findings[0].message.startswith(
        "own/fast.py: expected a top-level `ModelNew` (or `Model`) in the candidate, found Modle; "
    )
    assert verdict.log == ""
