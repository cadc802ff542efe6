"""Read CUDA and C++ texts: files, and the strings of a Python text that hold such code.

A string is code when it defines a kernel, includes a header, or is given to a compiler
(`load_inline`, `RawKernel`, NVRTC). Docstrings are prose. tree-sitter finds the functions. A text
that is too long for tree-sitter is one function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter_cuda
from tree_sitter import Language, Parser, Query, QueryCursor

from cudal1_ci.verification.static_rules.python_text import PythonText, last, literal_text

LONGEST_PARSED = 48_000
"""In bytes. Hostile text costs tree-sitter up to ten microseconds a byte."""
_CODE = re.compile(r"__global__|__device__|#\s*include\s*[<\"]|<<<|PYBIND11_MODULE|TORCH_LIBRARY")
_COMPILERS = {
    "load_inline",
    "RawKernel",
    "RawModule",
    "ElementwiseKernel",
    "SourceModule",
    "nvrtcCreateProgram",
    "compile_kernel",
    "_compile_kernel",
    "compile_cuda",
}
_QUIET = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.){1,4}\'', re.DOTALL
)
_NAME = re.compile(r"(~?[A-Za-z_]\w*)\s*\(")
SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cuh.inc")


@dataclass(frozen=True)
class CudaFunction:
    """A function with a body. Comments and strings are blank."""

    name: str
    head: str
    body: str
    line: int
    """Line of its first character, counted from 0 within the text."""

    @property
    def is_kernel(self) -> bool:
        return "__global__" in self.head


@dataclass(frozen=True)
class CudaText:
    """A text and the position of its lines in the file around it."""

    code: str
    """The text with blank comments; strings are kept."""
    bare: str
    """The text with blank comments and strings."""
    functions: tuple[CudaFunction, ...]
    first_line: int
    is_exact: bool
    """Whether its lines are the file's. Otherwise all findings are at the first line."""

    def line(self, offset: int, text: str | None = None) -> int:
        """Return the file's line of an offset into the text."""
        return self.line_at((text or self.bare).count("\n", 0, offset))

    def line_at(self, number: int) -> int:
        return self.first_line + number if self.is_exact else self.first_line


@cache
def parser() -> tuple[Parser, Query]:
    language = Language(tree_sitter_cuda.language())
    return Parser(language), Query(language, "(function_definition) @function")


def cuda_text(
    source: str, first_line: int = 1, is_exact: bool = True, is_parsed: bool = True
) -> CudaText:
    """Read a text. No content makes it fail."""
    code = _QUIET.sub(lambda m: m[0] if m[0][0] in "\"'" else blank(m[0]), source)
    bare = _QUIET.sub(lambda m: blank(m[0]), source)
    return CudaText(code, bare, tuple(functions_in(bare, is_parsed)), first_line, is_exact)


def blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def functions_in(bare: str, is_parsed: bool) -> Iterator[CudaFunction]:
    """Yield the functions of a text without comments and strings."""
    encoded = bare.encode("utf-8", "replace")
    if not is_parsed or len(encoded) > LONGEST_PARSED:
        yield CudaFunction("", "__global__" if "__global__" in bare else "", bare, 0)
        return
    parse, query = parser()
    found = QueryCursor(query).captures(parse.parse(encoded).root_node)
    for node in found.get("function", ()):
        body = node.child_by_field_name("body")
        if body is None:
            continue
        head = encoded[node.start_byte : body.start_byte].decode("utf-8", "replace")
        names = _NAME.findall(head)
        yield CudaFunction(
            names[-1] if names else "",
            head,
            encoded[body.start_byte : body.end_byte].decode("utf-8", "replace"),
            node.start_point[0],
        )


def cuda_strings(text: PythonText) -> Iterator[CudaText]:
    """Yield the CUDA and C++ texts in a Python text."""
    compiled = given_to_compilers(text)
    budget = LONGEST_PARSED * 2
    for node in text.every(ast.Constant, ast.JoinedStr):
        if node in text.docstrings or isinstance(text.parents.get(node), ast.JoinedStr):
            continue
        value = literal_text(node)
        if value is None or not (node in compiled or _CODE.search(value)):
            continue
        budget -= len(value)
        spread = (node.end_lineno or node.lineno) - node.lineno
        is_exact = spread == value.count("\n")
        yield cuda_text(value, node.lineno, is_exact=is_exact, is_parsed=budget > 0)


def given_to_compilers(text: PythonText) -> set[ast.AST]:
    """Return string literals that are given to compilers, directly, in lists or by name."""
    found: set[ast.AST] = set()
    for call in text.every(ast.Call):
        if last(call.func) not in _COMPILERS:
            continue
        sources = [
            k.value for k in call.keywords if k.arg in {"cpp_sources", "cuda_sources", "code"}
        ]
        pending: list[ast.AST] = [*call.args, *sources]
        for _ in range(100):
            if not pending:
                break
            node = pending.pop()
            match node:
                case ast.Constant(value=str()) | ast.JoinedStr():
                    found.add(node)
                case ast.List(elts=parts) | ast.Tuple(elts=parts):
                    pending.extend(parts)
                case ast.BinOp(left=left, right=right):
                    pending.extend([left, right])
                case ast.Name(id=name):
                    bound = text.bindings(node, name)
                    pending.extend(b for b in bound if isinstance(b, ast.AST))
    return found
