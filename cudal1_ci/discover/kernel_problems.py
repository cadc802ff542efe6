"""Build the problem of a kernel from a launcher, which can be called and compared.

A launcher whose calls are known is chosen. Declarations and traces come before guesses; then the
nearest launcher comes first, then path and line decide. The workloads' names include the launcher.
A kernel without a problem gets the reason and its fix.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.discover.ladder import Evidence, NoWorkload, workloads_of
from cudal1_ci.discover.launchers import Reach, is_native
from cudal1_ci.discover.programs import reference_program
from cudal1_ci.records import Problem, Target, TreeProgram, content_hash

NUM_NAMED = 3
NO_LAUNCHER = NoWorkload(
    "no launcher: no function or module of the tree was found that launches it",
    "launch it from a function at module level; an extension is found where "
    "torch.utils.cpp_extension.load names its file",
)
NEEDS_GPU = NoWorkload(
    "it needs a GPU; this run measures on the CPU",
    "measure on a GPU: --device cuda",
)
IS_LOCAL = NoWorkload(
    "it is made inside of a function, where it cannot be replaced",
    "move it to module level",
)
IS_INSTALLED = NoWorkload(
    "its file is built when the package is installed, and the verifier installs nothing: a changed "
    "kernel would not be what runs",
    "build it at its first use, by torch.utils.cpp_extension.load(name=..., sources=[...])",
)


def obstacle(target: Target, reach: Reach | None, on_gpu: bool) -> NoWorkload | None:
    """Return why a kernel cannot be verified, whatever calls are known.

    `reach` is None where only direct launchers were searched.
    """
    if "<locals>" in target.qualname and target.kind == "triton_kernel":
        return IS_LOCAL
    if reach is not None and reach.is_installed:
        return IS_INSTALLED
    if not (target.launchers if reach is None else reach.launchers):
        return NO_LAUNCHER
    return None if on_gpu else NEEDS_GPU


def kernel_problem(
    root: Path, target: Target, reach: Reach, discovery: Discovery, evidence: Evidence
) -> Problem | NoWorkload:
    """Return the problem about this kernel of the best launcher whose calls are known."""
    known = [
        (launcher, found)
        for launcher in reach.launchers
        if not isinstance(found := workloads_of(root, launcher, evidence), NoWorkload)
    ]
    if not known:
        return without_workload(reach)
    # The launchers are in order: of several equally good ones the first wins.
    launcher, workloads = min(known, key=lambda one: all(w.is_guess for w in one[1]))
    program = reference_program(root, launcher, discovery)
    return Problem(
        reference=with_native_files(program, discovery),
        workloads=tuple(
            msgspec.structs.replace(one, name=f"{launcher.qualname}: {one.name}")
            for one in workloads
        ),
        target=target,
    )


def without_workload(reach: Reach) -> NoWorkload:
    names = [f"`{one.path}:{one.qualname}`" for one in reach.launchers[:NUM_NAMED]]
    several = "one of those" if len(names) > 1 else "that"
    return NoWorkload(
        f"no workload: no known call of its launcher, {', '.join(names)}",
        f"record a call of {several}: `cudal1-ci trace`, `cudal1-ci trace -- COMMAND`; or declare "
        "a workload (docs/workloads.md)",
    )


def with_native_files(program: TreeProgram, discovery: Discovery) -> TreeProgram:
    """Return the program with the tree's C++ and CUDA files in its identity.

    Imports do not lead to these files, and a measurement of another kernel text is not valid.
    """
    files = sorted((p, facts.digest) for p, facts in discovery.facts.items() if is_native(p))
    digest = content_hash([program.digest, files]) if files else program.digest
    return msgspec.structs.replace(program, digest=digest)
