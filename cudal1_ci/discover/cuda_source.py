"""Read facts from CUDA and C++ text: kernels, functions that launch them, Python bindings.

tree-sitter gives the structure: templates, namespaces, `extern "C"`, structs, preprocessor branches
and `__launch_bounds__`. Unknown macros can break the grammar. Then every `__global__` that the tree
did not explain is read by its tokens: name, parameters, braces. A kernel that only a macro
expansion defines is not found. Nothing is run.

    source = cuda_source(b"template <typename T> __global__ void scale(T* x) { ... }")
    source.kernels[0].qualname == "scale"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from cudal1_ci.discover.facts import CudaBindingFact, CudaKernelFact, HostFunctionFact
from cudal1_ci.source.cuda import (
    cuda_parser,
    declared_name,
    function_definitions,
    template_around,
    text_of,
)

# A C++ or CUDA file without any of these is not parsed.
_MARKS = (b"__global__", b"<<<", b"TORCH_LIBRARY", b"PYBIND11_MODULE", b"cudaLaunchKernel")

_GLOBAL = re.compile(rb"\b__global__\b")
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMENT_OR_STRING = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_BINDING_MACRO = re.compile(rb"TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?|PYBIND11_MODULE")
# m.def("name(Tensor x) -> Tensor", &function): the name up to its schema, then the function:
# bare, behind `&`, in TORCH_FN(...) or as a lambda.
_DEFINITION = re.compile(
    rb'\.\s*(?:def|impl)\s*\(\s*(?:TORCH_SELECTIVE_\w+\s*\(\s*)?"(?P<name>[\w:.]+)[^"]*"'
    rb"(?P<rest>[^;]*)",
)
KEYWORDS = frozenset(
    b"if else for while do return const static auto void int float double bool char unsigned long "
    b"template typename class struct namespace using true false nullptr sizeof switch case break "
    b"inline constexpr size_t this new delete public private operator default".split()
)


@dataclass
class CudaSource:
    """Hold the definitions of a text."""

    kernels: list[CudaKernelFact] = field(default_factory=list)
    host_functions: list[HostFunctionFact] = field(default_factory=list)
    bindings: list[CudaBindingFact] = field(default_factory=list)


def may_matter(source: bytes) -> bool:
    """Return whether a file's bytes could define, launch or bind a kernel."""
    return any(mark in source for mark in _MARKS)


def cuda_source(text: bytes) -> CudaSource:
    """Read a CUDA or C++ text; never fail, whatever the text."""
    found = CudaSource()
    explained: list[tuple[int, int]] = []
    for scopes, node in function_definitions(cuda_parser().parse(text).root_node, ()):
        read_function(text, scopes, node, found, explained)
    blank = _COMMENT_OR_STRING.sub(lambda match: re.sub(rb"[^\n]", b" ", match[0]), text)
    for match in _GLOBAL.finditer(blank):
        if not any(start <= match.start() < end for start, end in explained):
            kernel = kernel_from_tokens(blank, match.end())
            if kernel is not None:
                found.kernels.append(kernel)
    found.kernels.sort(key=lambda kernel: kernel.first_line)
    return found


def read_function(
    text: bytes,
    scopes: tuple[str, ...],
    node: Node,
    found: CudaSource,
    explained: list[tuple[int, int]],
) -> None:
    """Record one function definition: a kernel, a block of bindings, or a host function."""
    body = node.child_by_field_name("body")
    name_node = declared_name(node.child_by_field_name("declarator"))
    if body is None or name_node is None:
        return
    name = text_of(name_node)
    head = text[node.start_byte : body.start_byte]
    block = COMMENT.sub(b" ", text[body.start_byte : body.end_byte])
    if any(child.type == "__global__" for child in node.children):
        first = template_around(node)
        explained.append((node.start_byte, node.end_byte))
        found.kernels.append(
            CudaKernelFact(
                "::".join((*scopes, name)), first.start_point[0] + 1, node.end_point[0] + 1
            )
        )
    elif _GLOBAL.search(_COMMENT_OR_STRING.sub(b"", head)):
        return  # a macro hid the kernel's head: the tokens are read later
    elif _BINDING_MACRO.fullmatch(name.encode()):
        found.bindings.extend(bindings_in(name, head, block))
    else:
        mentions = {word for word in _IDENTIFIER.findall(block) if word not in KEYWORDS}
        found.host_functions.append(
            HostFunctionFact(
                "::".join((*scopes, name)),
                tuple(sorted(word.decode("utf-8", "replace") for word in mentions)),
            )
        )


def bindings_in(macro: str, head: bytes, block: bytes) -> Iterator[CudaBindingFact]:
    """Yield each `def` and `impl` of a TORCH_LIBRARY or PYBIND11_MODULE, with its functions."""
    namespace = ""
    if macro.startswith("TORCH_LIBRARY"):
        words = _IDENTIFIER.findall(head.partition(b"(")[2])
        namespace = f"{words[0].decode()}::" if words else ""
    for match in _DEFINITION.finditer(block):
        name = match["name"].decode()
        name = name if "::" in name else f"{namespace}{name}"
        for word in _IDENTIFIER.findall(_COMMENT_OR_STRING.sub(b"", match["rest"])):
            if word not in KEYWORDS:
                yield CudaBindingFact(name, word.decode())


def kernel_from_tokens(text: bytes, start: int) -> CudaKernelFact | None:
    """Return the kernel whose `__global__` ends at `start`; None for a mere declaration.

    The name is the last word before parentheses that a body follows. Earlier words with parentheses
    (`__launch_bounds__(256)`, any macro) are attributes.
    """
    position, name = start, None
    while True:
        match = re.compile(rb"\s*(?:[\w:*&]+|<|>|,)").match(text, position)
        if match is not None:
            word = match[0].strip()
            name = word if _IDENTIFIER.fullmatch(word) else name
            position = match.end()
            continue
        opening = re.compile(rb"\s*\(").match(text, position)
        if opening is None:
            return None
        position = past_bracket(text, opening.end() - 1, b"(", b")")
        body = re.compile(rb"\s*\{").match(text, position)
        if body is not None:
            break
    if name is None:
        return None
    end = past_bracket(text, body.end() - 1, b"{", b"}")
    first_line = text.count(b"\n", 0, start) + 1
    return CudaKernelFact(name.decode(), first_line, text.count(b"\n", 0, end) + 1)


def past_bracket(text: bytes, start: int, opening: bytes, closing: bytes) -> int:
    """Return the position after the bracket that closes the one at `start`, or the text's end."""
    depth = 0
    for match in re.compile(re.escape(opening) + b"|" + re.escape(closing)).finditer(text, start):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.end()
    return len(text)
