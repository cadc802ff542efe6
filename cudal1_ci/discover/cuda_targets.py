"""Turn the CUDA facts of all files into targets, each kernel with its Python bindings.

A kernel's launchers come in this order. First come the names under which pybind or TORCH_LIBRARY
binds a C++ function that reaches the kernel. Without a binding, they are the C++ functions that
mention the kernel. Then come the Python functions or variables that build its file. Names within
the tree decide who reaches whom: two functions of one name are not distinguished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from cudal1_ci.discover.facts import CudaKernelFact, FileFacts
from cudal1_ci.records import Target


def cuda_targets(facts: Mapping[str, FileFacts]) -> Iterator[Target]:
    """Yield all `__global__` functions, in CUDA files and in strings of Python files."""
    callers = callers_by_name(facts)
    bindings: dict[str, set[str]] = defaultdict(set)
    for path, file in facts.items():
        for binding in file.cuda_bindings:
            bindings[binding.function].add(f"{path}:{binding.name}")
    builders = builders_by_file_name(facts)
    for path, file in facts.items():
        for kernel in file.cuda_kernels:
            if path.endswith(".py"):
                launchers = {f"{path}:{name}" for name in kernel.launchers}
            else:
                launchers = launchers_of(kernel, callers, bindings)
                launchers |= built_by(path, builders)
            yield Target(
                path=path,
                qualname=kernel.qualname,
                kind="cuda_kernel",
                first_line=kernel.first_line,
                last_line=kernel.last_line,
                launchers=tuple(sorted(launchers)),
            )


def callers_by_name(facts: Mapping[str, FileFacts]) -> dict[str, set[tuple[str, str]]]:
    """Map each name to the C++ functions (path and qualname) that mention it."""
    callers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path, file in facts.items():
        for function in file.host_functions:
            for name in function.mentions:
                callers[name].add((path, function.qualname))
    return callers


def launchers_of(
    kernel: CudaKernelFact,
    callers: Mapping[str, set[tuple[str, str]]],
    bindings: Mapping[str, set[str]],
) -> set[str]:
    """Return the bindings that reach a kernel, else the functions that mention the kernel."""
    name = last_name(kernel.qualname)
    direct = callers.get(name, set())
    bound = set(bindings.get(name, ()))
    seen = {name}
    pending = [last_name(qualname) for _, qualname in direct]
    while pending:
        function = pending.pop()
        if function in seen:
            continue
        seen.add(function)
        bound |= bindings.get(function, set())
        pending.extend(last_name(qualname) for _, qualname in callers.get(function, ()))
    return bound or {f"{path}:{qualname}" for path, qualname in direct}


def last_name(qualname: str) -> str:
    return qualname.rpartition("::")[2]


def builders_by_file_name(
    facts: Mapping[str, FileFacts], *, at_use: bool = False
) -> dict[str, set[tuple[str, str]]]:
    """Map each source file's base name to the paths that Python builds, each with its builder.

    `at_use` leaves out files that are built when the package is installed.
    """
    builders: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path, file in facts.items():
        for extension in file.extensions:
            if at_use and extension.is_installed:
                continue
            for source in extension.sources:
                name = PurePosixPath(source).name
                builders[name].add((source, f"{path}:{extension.qualname}"))
    return builders


def built_by(path: str, builders: Mapping[str, set[tuple[str, str]]]) -> set[str]:
    """Return the builders of a file whose path ends with the path that they build.

    Sources are often joined to a folder at run time, so only the ends of the paths can be compared.
    """
    found = set()
    for source, builder in builders.get(PurePosixPath(path).name, ()):
        parts = [part for part in PurePosixPath(source).parts if part not in {".", "..", "/"}]
        if PurePosixPath(path).parts[-len(parts) :] == tuple(parts):
            found.add(builder)
    return found
