"""What compilers said, and what of it is shown. The raw output is that of g++ 12, nvcc 13.0 and
NVRTC 13.0, with other folders; what is expected of it stands beside it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.builds.compile_errors import (
    MAX_CHARS,
    compile_error,
    line_in,
    trimmed,
    without_paths,
)
from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure
from cudal1_ci.sandboxed.verifier.failures import rejection_of_candidate
from cudal1_ci.sandboxed.wire.runner import Raised
from cudal1_ci.sandboxed.wire.verdicts import Finding
from tests.unit.sandboxed.messages import text

SAMPLES = Path(__file__).parent / "compiler_output"
RUNNER = "/tmp/runner"


def said(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.txt")))
def test_compiler_output_is_trimmed_as_it_stands_in_the_file(name):
    expected = (SAMPLES / f"{name}.expected").read_text().removesuffix("\n")
    assert trimmed(without_paths(said(name), [RUNNER])) == expected


def test_the_samples_are_far_longer_than_what_is_shown():
    """Otherwise nothing above says that anything is left out."""
    for name in ("gcc_template", "nvcc_template"):
        assert len(said(name)) > 20 * len(trimmed(said(name)))


def test_what_load_inline_raises_is_a_compile_error_without_its_command_lines():
    found = compile_error(RuntimeError(said("gcc")), [RUNNER])
    assert found is not None
    first = found.message.splitlines()[0]
    assert first.startswith("main.cpp:7:37: error: conversion from")
    for left_out in ("-isystem", "FAILED", "ninja", RUNNER):
        assert left_out not in found.message
        assert left_out not in found.output
    assert "In function" in found.output


def test_an_ordinary_exception_is_no_compile_error():
    assert compile_error(RuntimeError("main.cpp:1:2: error: no")) is None
    assert compile_error(SyntaxError("invalid syntax")) is None


def test_many_errors_are_cut_between_two_and_counted():
    lines = [f"main.cpp:{i}:1: error: number {i} is wrong\n  {i} | text of it" for i in range(200)]
    found = trimmed("\n".join(lines))
    assert len(found) <= MAX_CHARS
    *_, last_excerpt, more = found.splitlines()
    shown = found.count("error: number")
    assert last_excerpt == f"  {shown - 1} | text of it"
    assert more == f"... and {200 - shown} more errors"


def test_one_endless_error_is_cut():
    found = trimmed("main.cpp:1:1: error: " + "x" * 10_000 + "\n" + "  1 | y" * 9000)
    assert found.startswith("main.cpp:1:1: error: xxx")
    assert len(found) <= MAX_CHARS


def test_of_output_without_an_error_the_end_is_shown():
    assert trimmed("[1/2] c++ -c x.cpp -o x.o\nSegmentation fault\nninja: build stopped.") == (
        "Segmentation fault"
    )


@pytest.mark.parametrize(
    "text",
    [
        "main.cpp:1:1: error: x\n" * 9000,
        "a" * 200_000,
        ":" * 200_000,
        ("(" * 300 + "1): error: \n") * 600,
        " at line 1 of " * 14_000,
        "c++ " + "-c " * 60_000,
        "detected during " * 12_000,
    ],
)
def test_hostile_output_takes_no_time(text):
    started_s = time.perf_counter()
    compile_error(RuntimeError(f"Error building extension 'x': {text}"), [RUNNER])
    assert time.perf_counter() - started_s < 2


class CompilationError(Exception):
    """Named as Triton's is, which is recognized by its name: the worker does not import Triton."""


KERNEL = """\
at 4:8:
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = tl.dot(x, x)
        ^
input and other must have equal ranks >= 2"""
"""What Triton 3.9 says."""


def test_of_a_triton_error_the_reason_comes_first():
    found = compile_error(CompilationError(KERNEL))
    assert found is not None
    lines = found.message.splitlines()
    assert lines[0] == "kernel:4:8: error: input and other must have equal ranks >= 2"
    assert lines[-2:] == ["    y = tl.dot(x, x)", "        ^"]


def test_of_nested_triton_errors_the_innermost_counts():
    outer = CompilationError("at 9:4:\ndef caller(x):\n    kernel(x)\n    ^\n")
    outer.__cause__ = CompilationError(KERNEL)
    found = compile_error(outer)
    assert found is not None
    assert found.message.startswith("kernel:4:8: error: input and other")


def test_the_line_of_the_program_is_found_by_what_is_shown():
    source = (
        'CPP = """\n#include <vector>\nint f() {\n    std::vector<int> sizes = x.sizes();\n}"""\n'
    )
    message = trimmed(without_paths(said("gcc"), [RUNNER]))
    assert line_in(source, message) == 4
    assert line_in(source + source, message) is None, "two lines are like it"
    assert line_in("x = 1\n", message) is None


def test_the_verdict_names_the_error_and_its_line():
    found = compile_error(RuntimeError(said("nvrtc")), [RUNNER])
    assert found is not None
    error = Raised(kind="RuntimeError", message=found.message, stage="compile")
    failure = RunnerFailure("raised", found.message, error, found.output)
    source = "KERNEL = '''\n    if (i < n) x[i] *= factr;\n'''"
    rejected = rejection_of_candidate(failure, text(source))
    assert rejected.status == "compile_error"
    assert rejected.finding == Finding(
        rule="program.compile",
        message='scale.cu(3): error: identifier "factr" is undefined',
        evidence=found.message,
        line=2,
    )
    assert "errors detected" not in rejected.log
