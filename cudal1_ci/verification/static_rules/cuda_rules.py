"""Find suspicious patterns in CUDA and C++ text.

Patterns match text without comments and strings, within the functions that tree-sitter finds.
Macros are not expanded. Races and caches are left to the inputs of the verifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.cuda_text import CudaText
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_MAKES_STREAM = re.compile(r"\b(?:cudaStreamCreate\w*|getStreamFromPool)\s*\(")
_JOINS = re.compile(
    r"\b(?:cudaStreamWaitEvent|cudaStreamSynchronize|cudaDeviceSynchronize|cudaEventSynchronize"
    r"|hipStreamWaitEvent|cuStreamWaitEvent|cuStreamSynchronize)\s*\(|(?:\.|->)(?:block|synchronize)\s*\("
)
_LAUNCH = re.compile(
    r"<<<[^;]{0,120}?>>>|\bcudaLaunchKernel\w*\s*\(|\bcuLaunchKernel\w*\s*\(|\bcublas\w+\s*\("
)
_FORGED = re.compile(
    r"\bcuda(?:Error_t|Error)?[\w\s]{0,80}\bcuda(?:Event\w+|DeviceSynchronize|StreamSynchronize)"
    r"\s*\([^;{}()]{0,200}\)\s*(?:noexcept\s*)?\{"
    r"|#\s*define\s+(?:cudaEvent\w+|cudaDeviceSynchronize|cudaStreamSynchronize|clock_gettime)\b"
    r"(?!(?:\([^)\n]*\))?\s+(?:hip|musa|cu)[A-Z])"
    r"|\bint\s+(?:clock_gettime|gettimeofday)\s*\([^;{}()]{0,200}\)\s*\{"
)
_HALF = re.compile(
    r"__float2half\w*|__float2bfloat16\w*|\(\s*(?:__half|half|__nv_bfloat16)\s*\)|__nv_fp8\w*"
    r"|precision::tf32|__float_to_tf32|static_cast\s*<\s*(?:__half|half|__nv_bfloat16|at::Half)\s*>"
    r"|cvt\.\w+\.tf32|\b(?:__half|half|__nv_bfloat16)2?\s+\w+\s*[=\[(]"
)
_FLOATS = re.compile(r"\bfloat\s*(?:const\s*)?\*")


def seen(text: CudaText, pattern: re.Pattern[str], message: str) -> Iterator[Sight]:
    """Yield a sight for every match in the text without strings."""
    for match in pattern.finditer(text.bare):
        yield Sight(text.line(match.start()), message.format(match[0].strip(" (\n")))


def unjoined_stream(text: CudaText) -> Iterator[Sight]:
    if _LAUNCH.search(text.bare) and not _JOINS.search(text.bare):
        yield from seen(
            text, _MAKES_STREAM, "work on a stream of its own (`{}`), and nothing waits for it"
        )


def timer_forged(text: CudaText) -> Iterator[Sight]:
    yield from seen(text, _FORGED, "defines a timer or a synchronization of its own (`{}`)")


def process_memory(text: CudaText) -> Iterator[Sight]:
    yield from seen(
        text,
        re.compile(r"\b(?:mprotect|process_vm_writev|ptrace)\s*\("),
        "`{}`: makes code writable, or writes elsewhere",
    )
    for match in re.finditer(r'"/proc/(?:self|%d|\d+)/mem"', text.code):
        yield Sight(text.line(match.start(), text.code), "opens the memory of a process")


def low_precision(text: CudaText) -> Iterator[Sight]:
    for function in text.functions:
        if (
            function.is_kernel
            and _FLOATS.search(function.head)
            and not re.search(r"\bhalf\b", function.head)
        ):
            match = _HALF.search(function.body)
            if match:
                number = (
                    function.line
                    + function.head.count("\n")
                    + function.body.count("\n", 0, match.start())
                )
                yield Sight(
                    text.line_at(number),
                    f"a kernel for float computes in less (`{match[0].strip()}`)",
                )


CHECKS: tuple[Check[CudaText], ...] = (
    check(
        "cuda_unjoined_stream",
        unjoined_stream,
        "a stream is made and used, and nothing waits for it",
    ),
    check(
        "cuda_timer_forged",
        timer_forged,
        "a function or macro named like a CUDA timer or synchronization is defined",
        convicts=True,
    ),
    check(
        "cuda_process_memory",
        process_memory,
        "`/proc/self/mem`, `mprotect`, `ptrace` in native code",
        convicts=True,
    ),
    check(
        "cuda_low_precision",
        low_precision,
        "a kernel for float computes in half, bfloat16, TF32 or fp8",
    ),
)
