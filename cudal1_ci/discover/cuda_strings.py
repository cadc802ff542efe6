"""Find CUDA in Python files: kernels in string constants, and calls that build CUDA files.

A string that defines a `__global__` function is CUDA, whatever compiles it (`load_inline`, cupy's
`RawKernel` and `RawModule`, NVRTC, PyCUDA). Docstrings are excluded. The launchers of such a kernel
are the functions of the file that use the string, directly or through module-level names. Lines are
exact where the string is one literal that has the file's own lines. Otherwise they are those of the
whole expression.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cudal1_ci.discover.cuda_source import cuda_source
from cudal1_ci.discover.facts import CudaKernelFact, ExtensionFact
from cudal1_ci.discover.syntax import MODULE_LEVEL, definitions, dotted_name, walk

_BUILDERS = re.compile(
    r"(?:.*\.)?(?:load|load_inline|CUDAExtension|CppExtension|CUDA_EXTENSION)|(?:.*\.)?_?get_ext\w*"
)
_AT_USE = frozenset({"load", "load_inline"})
_MARKS = (b"cpp_extension", b"CUDAExtension", b"load_inline")
_SOURCE_STRING = re.compile(r".*\.(?:cu|cuh|cpp|cc|cxx)")


@dataclass(frozen=True)
class CudaInPython:
    """Hold the CUDA kernels and extensions of a Python file."""

    kernels: tuple[CudaKernelFact, ...] = ()
    extensions: tuple[ExtensionFact, ...] = ()


@dataclass(frozen=True)
class Owner:
    """Name a function, method or module-level name, and hold the statement that defines it."""

    qualname: str
    statement: ast.stmt
    is_function: bool


def may_matter(source: bytes) -> bool:
    """Return whether a file's bytes could hold CUDA or build it."""
    return b"__global__" in source or any(mark in source for mark in _MARKS)


def cuda_in_python(tree: ast.Module, source: bytes) -> CudaInPython:
    """Return the kernels in the strings of a file and the extensions that the file builds."""
    has_kernel = b"__global__" in source
    builds = any(mark in source for mark in _MARKS)
    if not has_kernel and not builds:
        return CudaInPython()
    owners = list(owners_in(tree))
    return CudaInPython(
        kernels=tuple(kernels_in_strings(tree, owners)) if has_kernel else (),
        extensions=tuple(extensions_in(owners)) if builds else (),
    )


def owners_in(tree: ast.Module) -> Iterator[Owner]:
    """Yield functions and methods, then module-level assignments, then the rest of the module."""
    for qualname, node in definitions(tree.body):
        if not isinstance(node, ast.ClassDef) and "<locals>" not in qualname:
            yield Owner(qualname, node, is_function=True)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield Owner(name, statement, is_function=False)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case _:
                yield Owner(MODULE_LEVEL, statement, is_function=False)


def kernels_in_strings(tree: ast.Module, owners: list[Owner]) -> Iterator[CudaKernelFact]:
    """Yield the kernels that string constants define, each with the string's users."""
    prose = docstrings(tree)
    seen: set[int] = set()
    for owner in owners:
        for node in walk(owner.statement):
            text = string_text(node)
            if text is None or "__global__" not in text or id(node) in prose or id(node) in seen:
                continue
            seen.update(id(inner) for inner in walk(node))
            launchers = users_of(owner, owners)
            for kernel in cuda_source(text.encode("utf-8", "replace")).kernels:
                first_line, last_line = lines_in_file(node, text, kernel)
                yield CudaKernelFact(kernel.qualname, first_line, last_line, launchers)


def string_text(node: ast.AST) -> str | None:
    """Return the value of a string or f-string, with `X` for each field of an f-string."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            parts = (
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else "X"
                for part in values
            )
            return "".join(parts)
    return None


def docstrings(tree: ast.Module) -> set[int]:
    """Return the identities of the string nodes that are statements by themselves."""
    return {
        id(node.value)
        for node in walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    }


def lines_in_file(node: ast.AST, text: str, kernel: CudaKernelFact) -> tuple[int, int]:
    """Return the first and last line in the Python file of a kernel in a string."""
    assert isinstance(node, ast.Constant | ast.JoinedStr)
    end = node.end_lineno or node.lineno
    if end - node.lineno != text.count("\n"):
        return node.lineno, end
    return node.lineno + kernel.first_line - 1, node.lineno + kernel.last_line - 1


def users_of(owner: Owner, owners: list[Owner]) -> tuple[str, ...]:
    """Return functions that mention an owner's name, also through other names; else the owner."""
    if owner.is_function:
        return (owner.qualname,)
    reached, users = {owner.qualname}, []
    pending = [owner.qualname]
    while pending:
        name = pending.pop()
        for other in owners:
            if other.qualname not in reached and name in mentioned_names(other.statement):
                reached.add(other.qualname)
                pending.append(other.qualname.rpartition(".")[2])
                if other.is_function:
                    users.append(other.qualname)
    return tuple(sorted(users)) or (owner.qualname,)


def mentioned_names(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def extensions_in(owners: list[Owner]) -> Iterator[ExtensionFact]:
    """Yield the calls that build C++ and CUDA files, with the owner of each."""
    for owner in owners:
        for node in walk(owner.statement):
            builder = dotted_name(node.func) if isinstance(node, ast.Call) else None
            if builder is None or not _BUILDERS.fullmatch(builder):
                continue
            texts = {text for one in with_constants(owner, owners) for text in strings_in(one)}
            sources = tuple(sorted(text for text in texts if _SOURCE_STRING.fullmatch(text)))
            if sources:
                is_installed = builder.rpartition(".")[2] not in _AT_USE
                yield ExtensionFact(owner.qualname, sources, is_installed)
                break


def with_constants(owner: Owner, owners: list[Owner]) -> list[Owner]:
    """Return an owner and the names of its module that it mentions, also through other names.

    The list of sources is often made a few lines above, in the same function or outside it.
    """
    found = [owner]
    for one in found:
        names = mentioned_names(one.statement)
        found += [
            other
            for other in owners
            if not other.is_function and other.qualname in names and other not in found
        ]
    return found


def strings_in(owner: Owner) -> set[str]:
    return {
        node.value
        for node in walk(owner.statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
