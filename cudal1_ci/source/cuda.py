"""Parse CUDA and C++ texts with tree-sitter: functions, their names, their spans.

This module knows syntax alone. Its callers decide what a function is to this tool (a kernel, a
launcher, a binding).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_OPAQUE = frozenset(
    {"namespace_definition", "linkage_specification", "template_declaration", "declaration_list"}
    | {"preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "translation_unit"}
    | {"struct_specifier", "class_specifier", "field_declaration_list", "ERROR", "declaration"}
    | {"expression_statement", "compound_statement"}
)
"""Nodes in which function definitions may stand, besides function definitions themselves."""


@cache
def cuda_parser() -> Parser:
    return Parser(Language(tree_sitter_cuda.language()))


def function_definitions(
    node: Node, scopes: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield function definitions outside of other functions, each with its namespaces
    and classes.
    """
    for child in node.children:
        if child.type == "function_definition":
            yield scopes, child
        elif child.type in _OPAQUE:
            name = child.child_by_field_name("name")
            is_scope = child.type.endswith(("namespace_definition", "_specifier"))
            inner = (*scopes, text_of(name)) if is_scope and name is not None else scopes
            yield from function_definitions(child, inner)


def function_texts(text: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Yield qualname, first line, first and past-the-last byte of every function with a body."""
    for scopes, node in function_definitions(cuda_parser().parse(text).root_node, ()):
        name = declared_name(node.child_by_field_name("declarator"))
        if name is not None and node.child_by_field_name("body") is not None:
            first = template_around(node)
            qualname = "::".join((*scopes, text_of(name)))
            yield qualname, first.start_point[0] + 1, first.start_byte, node.end_byte


def declared_name(declarator: Node | None) -> Node | None:
    """Return the name at the end of a chain of declarators (pointers, references, functions)."""
    while declarator is not None:
        if declarator.type in {"identifier", "field_identifier", "qualified_identifier"}:
            return declarator
        if declarator.type == "template_function":
            return declarator.child_by_field_name("name")
        inner = declarator.child_by_field_name("declarator")
        if inner is None:  # a reference declarator does not name its field
            inner = next(
                (child for child in declarator.children if child.type.endswith("declarator")), None
            )
        declarator = inner
    return None


def template_around(node: Node) -> Node:
    """Return the outermost `template <...>` of a function, or the function itself."""
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    return node


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
