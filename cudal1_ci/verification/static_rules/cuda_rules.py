"""Rules about CUDA and C++ text.

Patterns over text without comments and strings, within the functions that tree-sitter finds. What
macros expand to is not known; `cuda_token_pasting` says where names are put together. Races, and
caches by arithmetic on addresses, are left to the judge's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from cudal1_ci.verification.static_rules.cuda_text import CudaFunction, CudaText
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

MOST_LOOKED_AT = 100
"""Branches of a function, and macros of a text, that are looked into."""
_STATIC = re.compile(
    r"\b(?:static|thread_local)\s+(?!const\b|constexpr\b|inline\b|__global__|__device__)"
    r"(?:[\w:]+(?:<[^;{}()]{0,120}>)?[\s*&]+){1,6}?(\w+)\s*(?:=|;|\{|\[)"
)
_IF = re.compile(r"\bif\s*\(")
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
    """A sight for every match in the text without strings."""
    for match in pattern.finditer(text.bare):
        yield Sight(text.line(match.start()), message.format(match[0].strip(" (\n")))


def hosts(text: CudaText) -> Iterator[CudaFunction]:
    return (f for f in text.functions if not f.is_device or not f.name)


def static_result(text: CudaText) -> Iterator[Sight]:
    """Host code that returns, or skips its launch, for what an earlier call left behind."""
    shared = {m[1] for m in _STATIC.finditer(outside(text))}
    for function in hosts(text):
        body = function.body
        if not _LAUNCH.search(body):
            continue
        names = shared | {m[1] for m in _STATIC.finditer(body)}
        for match in islice(_IF.finditer(body), MOST_LOOKED_AT):
            test, block = test_and_block(body, match.end() - 1)
            words = set(re.findall(r"\w+", test))
            skips = re.search(r"\breturn\b", block) and not _LAUNCH.search(block)
            if names & words and (skips or _LAUNCH.search(block)):
                number = (
                    function.line + function.head.count("\n") + body.count("\n", 0, match.start())
                )
                yield Sight(
                    text.line_at(number), "skips its kernel for what an earlier call left behind"
                )


def outside(text: CudaText) -> str:
    """The text without the bodies of its functions."""
    left = text.bare
    for function in text.functions:
        left = left.replace(function.body, "{}", 1) if function.name else left
    return left


def test_and_block(body: str, start: int) -> tuple[str, str]:
    """The condition that opens at `start`, and the statement or block behind it."""
    end = closing(body, start, "(", ")")
    rest = body[end : end + 4000].lstrip()
    if rest.startswith("{"):
        return body[start:end], rest[: closing(rest, 0, "{", "}")]
    return body[start:end], rest.partition(";")[0] + ";"


def closing(text: str, start: int, opens: str, closes: str) -> int:
    """Past the bracket that closes the one at `start`, within a few thousand characters."""
    depth = 0
    for position in range(start, min(len(text), start + 4000)):
        if text[position] == opens:
            depth += 1
        elif text[position] == closes:
            depth -= 1
            if depth == 0:
                return position + 1
    return min(len(text), start + 4000)


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


def token_pasting(text: CudaText) -> Iterator[Sight]:
    """`#define CALL(a, b) a##b` that is given parts of a CUDA function's name."""
    pasted = re.finditer(r"#\s*define\s+(\w+)\s*\([^)\n]*\)((?:\\\n|[^\n])*)", text.bare)
    for match in islice(pasted, MOST_LOOKED_AT):
        if "##" not in match[2]:
            continue
        uses = re.search(
            rf"\b{match[1]}\s*\(\s*(?:cuda?|cu)[A-Z]?\w*\s*,", text.bare[match.end() :]
        )
        if uses or re.search(
            r"\bcu(?:da)?\w*\s*##|##\s*(?:Event|Stream|Synchronize|Elapsed)", match[2]
        ):
            yield Sight(
                text.line(match.start()), "puts the name of a CUDA function together from parts"
            )


def matching(name: str, pattern: str, message: str, summary: str) -> Check[CudaText]:
    """A rule that never convicts and sees whatever matches."""
    compiled = re.compile(pattern)
    return check(name, lambda text: seen(text, compiled, message), summary)


CHECKS: tuple[Check[CudaText], ...] = (
    check(
        "cuda_static_result",
        static_result,
        "host code skips its launch for something kept in a static variable",
    ),
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
    check(
        "cuda_token_pasting", token_pasting, "names of CUDA functions are put together by macros"
    ),
    matching(
        "cuda_nonblocking_stream",
        r"\bcudaStreamNonBlocking\b",
        "`{}`: a stream that waits for no other",
        "a stream that does not wait for the default stream",
    ),
    matching(
        "cuda_host_callback",
        r"\b(?:cudaLaunchHostFunc|cudaStreamAddCallback)\b",
        "`{}`: host code runs after the call",
        "host functions are put into a stream",
    ),
    matching(
        "cuda_dynamic_symbol",
        r"\b(?:dlsym|dlopen|dlvsym)\s*\(",
        "`{}`: looks functions up when run",
        "functions are looked up when run",
    ),
    matching(
        "cuda_persisting_cache",
        r"\bcudaLimitPersistingL2CacheSize\b|\bcudaAccessPropertyPersisting\b|\baccessPolicyWindow\b",
        "`{}`: keeps data in L2 across calls",
        "data are kept in the L2 cache across calls",
    ),
    matching(
        "cuda_host_thread",
        r"\bstd::(?:thread|async|jthread)\b|\bpthread_create\s*\(",
        "`{}`: work beside the call",
        "native threads are started",
    ),
    matching(
        "cuda_device_timer",
        r"\bclock64\s*\(|\bglobaltimer\w*|%clock\w*|\bclock\s*\(\s*\)",
        "`{}`: the kernel reads a clock",
        "a kernel reads a clock",
    ),
    matching(
        "cuda_other_process",
        r"(?<![\w.>:])(?:system|popen|fork|vfork|execv\w*|execl\w*)\s*\(",
        "`{}`: starts processes",
        "native code starts processes",
    ),
)
