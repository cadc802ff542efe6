"""Check whether the kernels that a candidate defines ran and did the work.

Own kernels are those that the candidate's text defines (`@triton.jit`, `__global__`) and that the
reference does not launch under the same name. Where a kernel is itself the target, it counts too: a
kernel that does not run was not made faster.
Their share is of the device time of one untimed call, as the profiler in the candidate's process
measured it. A process can forge that, so evidence explains a verdict and never improves it.
A decoy is a kernel that runs and does next to nothing. A branch that is never taken shows as a
kernel that is not launched.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from cudal1_ci.records import Finding, Kernel, Problem, Program, Target, TextProgram
from cudal1_ci.sandboxed.wire.verdicts import KernelTime
from cudal1_ci.source.kernel_names import bare_name
from cudal1_ci.verification.static_rules.base_text import base_text
from cudal1_ci.verification.static_rules.cuda_text import (
    SUFFIXES,
    CudaText,
    cuda_strings,
    cuda_text,
)
from cudal1_ci.verification.static_rules.python_text import PARSE_ERRORS, PythonText, last

DECOY_SHARE = 0.02
"""Share of the device time below which a kernel does next to nothing. An honest epilogue of a
large product takes a tenth of the time, and an empty kernel as much of a short call. A larger
share is shown and is no accusation."""
NUM_NAMED = 5
_GLOBAL = re.compile(r"__global__\b[^;{}]*?\b([A-Za-z_]\w*)\s*\(", re.DOTALL)
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__attribute__|alignas)\s*\((?:[^()]|\([^()]*\))*\)"
)
_LIBRARY = re.compile(r"(?:void )?(?:at|c10|cub|thrust|cutlass|cudnn)::")


def declared_kernels(program: Program) -> frozenset[str]:
    """Return the names of the kernels that a program's own text defines."""
    if isinstance(program, TextProgram):
        return frozenset(kernels_in(program.source, "candidate.py", program.entry))
    return frozenset(
        name for file in program.overlay for name in kernels_in(file.text, file.path, "")
    )


def own_names(problem: Problem, program: Program) -> frozenset[str]:
    """Return the names that count as a candidate's own kernels.

    These are the new names in the files that the candidate changes; the others are the user's. A
    kernel that is the target counts under its old name. It also counts where only another file,
    which launches it, changed.
    """
    declared = declared_kernels(program)
    if isinstance(program, TextProgram):
        return declared
    before = {
        name
        for file in program.overlay
        for name in kernels_in(base_text(program, file), file.path, "")
    }
    target = problem.target
    if target is None or not target.is_kernel:
        return declared - before
    is_changed = target.path in {file.path for file in program.overlay}
    kept = declared & {target.last_name} if is_changed else {target.last_name}
    return (declared - before) | kept


def kernels_in(source: str, path: str, entry: str) -> Iterator[str]:
    """Yield the names of the Triton and CUDA kernels of one file; none if it does not parse."""
    native: Sequence[CudaText] = ()
    suffix = PurePosixPath(path).suffix
    if suffix in SUFFIXES:
        native = (cuda_text(source),)
    elif suffix == ".py":
        try:
            text = PythonText(source, entry)
        except PARSE_ERRORS:
            return
        for node in text.every(ast.FunctionDef):
            if isinstance(node, ast.FunctionDef) and any(is_jit(d) for d in node.decorator_list):
                yield node.name
        native = tuple(cuda_strings(text))
    for code in native:
        yield from _GLOBAL.findall(_ATTRIBUTE.sub("", code.bare))


def is_jit(decorator: ast.expr) -> bool:
    """Return whether a decorator is `@triton.jit` or `@triton.jit(...)`. Autotuning and
    heuristics are further decorators above it."""
    return last(decorator.func if isinstance(decorator, ast.Call) else decorator) == "jit"


def kernels_of(
    rows: Sequence[KernelTime],
    declared: frozenset[str],
    known: frozenset[str],
    target: Target | None = None,
) -> tuple[Kernel, ...]:
    """Return the launched kernels, each marked as the candidate's own or not. `known` are the
    reference's. Where the target is itself a kernel, the reference's kernel has the same name."""
    if target is not None and target.is_kernel:
        known = frozenset(name for name in known if bare_name(name) != target.last_name)
    return tuple(
        Kernel(
            name=row.name,
            num_launches=row.num_calls,
            device_us=row.time_us,
            is_own=is_own(row.name, declared) and row.name not in known,
        )
        for row in rows
    )


def is_own(name: str, declared: frozenset[str]) -> bool:
    """Return whether a launched kernel's demangled name is that of a declared one."""
    return _LIBRARY.match(name) is None and bare_name(name) in declared


def own_share(kernels: Sequence[Kernel]) -> float:
    """Return the own kernels' share of the device time, from 0 to 1."""
    total = sum(kernel.device_us for kernel in kernels)
    return sum(kernel.device_us for kernel in kernels if kernel.is_own) / total if total else 0.0


def finding_on(kernels: Sequence[Kernel], declared: frozenset[str]) -> Finding | None:
    """Return the finding against a candidate's kernels, or None where they do the work."""
    others = ", ".join(f"`{k.name[:80]}`" for k in kernels if not k.is_own) or "nothing"
    if not declared:
        message = f"it defines no Triton or CUDA kernel; what ran is {others[:400]}"
        return Finding(rule="kernel.missing", message=message)
    names = ", ".join(f"`{name}`" for name in sorted(declared)[:NUM_NAMED])
    if not any(kernel.is_own for kernel in kernels):
        message = f"it defines {names} and launches none of them; what ran is {others[:400]}"
        return Finding(rule="kernel.unlaunched", message=message)
    share = own_share(kernels)
    if share < DECOY_SHARE:
        message = (
            f"its own kernels take {100 * share:.1f} % of the device time: a decoy; the work is "
            f"done by {others[:400]}"
        )
        return Finding(rule="kernel.decoy", message=message)
    return None
