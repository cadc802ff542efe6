"""Find numbers in launches of a CUDA kernel: how many threads a block has.

    kernel<<<(n + 255) / 256, 256>>>(x, n);

A size counts if it is a literal number: in the launch, in a `dim3`, or in a name that is defined
once. CUDA text in a string of a Python file counts too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from cudal1_ci.propose.launch_config.number import LaunchNumber, Place, merged
from cudal1_ci.propose.launch_config.python_places import PythonPlaces
from cudal1_ci.source.cuda import cuda_parser, declared_name, text_of

WARP = 32
THREADS = 1024
"""The most threads of a block. Source: CUDA C++ Programming Guide, compute capabilities."""
INTEGER = re.compile(r"(\d+)[uUlL]*")
DIMENSIONS = ("x", "y", "z")


def cuda_numbers(text: str, kernel: str) -> tuple[LaunchNumber, ...]:
    """Return the numbers in the launches of a kernel in a CUDA text."""
    root = cuda_parser().parse(text.encode()).root_node
    return merged(
        one for launch in launches_in(root, kernel) for one in numbers_of(launch, scopes_of(launch))
    )


def cuda_numbers_in_strings(text: str, kernel: str) -> tuple[LaunchNumber, ...]:
    """Return the numbers of launches in a Python text's strings. Only strings without escapes
    count.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    places, found = PythonPlaces(text), []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if "<<<" not in node.value or kernel not in node.value:
            continue
        held = places.of(node)
        source = text.encode()[held.first : held.end]
        opening = re.match(rb"[rRuU]?(\"\"\"|''')", source)
        if opening is None or source[opening.end() : -3].decode() != node.value:
            continue  # escapes, several strings in a row, or other line ends
        by = held.first + opening.end()
        found += [moved(one, by) for one in cuda_numbers(node.value, kernel)]
    return merged(found)


def moved(number: LaunchNumber, by: int) -> LaunchNumber:
    places = (replace(one, first=one.first + by, end=one.end + by) for one in number.places)
    return replace(number, places=tuple(places))


@dataclass(frozen=True)
class Launch:
    """A launch `kernel<<<grid, block>>>(...)`."""

    node: Node
    grid: Node
    block: Node


def launches_in(node: Node, kernel: str) -> Iterator[Launch]:
    for child in node.named_children:
        if child.type == "call_expression":
            launched = child.child_by_field_name("function")
            given = next((c for c in child.children if c.type == "kernel_call_syntax"), None)
            if given is not None and launched is not None and last_name(launched) == kernel:
                numbers = given.named_children
                if len(numbers) > 1:
                    yield Launch(child, numbers[0], numbers[1])
        yield from launches_in(child, kernel)


def last_name(node: Node) -> str:
    """Return the last part of a name: `scale` of `ops::scale<float, 4>`."""
    if node.type == "qualified_identifier":
        inner = node.child_by_field_name("name")
        return last_name(inner) if inner is not None else ""
    if node.type in {"template_function", "template_method"}:
        inner = node.child_by_field_name("name")
        return text_of(inner) if inner is not None else ""
    return text_of(node)


def scopes_of(launch: Launch) -> tuple[Node, ...]:
    """Return the scopes around a launch, the innermost first."""
    found = []
    node = launch.node.parent
    while node is not None:
        found.append(node)
        node = node.parent
    return tuple(found)


def numbers_of(launch: Launch, scopes: Sequence[Node]) -> Iterator[LaunchNumber]:
    sizes = dimensions(launch.block, scopes)
    for place, node in enumerate(sizes):
        literal = number(node, scopes)
        if literal is None:
            continue
        value, where = literal
        least = WARP if len(sizes) == 1 else 1
        if value < max(least, 2) or value & (value - 1):
            continue
        places = [where]
        if node.type == "number_literal":
            grid = [launch.grid, *defined(launch.grid, scopes)]
            repeated = [one for part in grid for one in repetitions(part, value)]
            if repeated and len(sizes) > 1:  # it is unknown which of them the grid repeats
                continue
            places += repeated
        name = text_of(node) if node.type == "identifier" else "blockDim"
        if node.type != "identifier" and len(sizes) > 1:
            name += f".{DIMENSIONS[place]}"
        yield LaunchNumber(name, value, tuple(dict.fromkeys(places)), "by doubling", least, THREADS)


def dimensions(block: Node, scopes: Sequence[Node]) -> list[Node]:
    """Return the sizes of a block: of `dim3(16, 16)`, of a name of one, or the one number
    itself.
    """
    for node in (block, *defined(block, scopes)):
        given = next((c for c in node.children if c.type == "argument_list"), None)
        if node.type == "argument_list":
            given = node
        elif node.type == "call_expression" and not text_of(node).startswith("dim3"):
            return []
        if given is not None:
            return given.named_children[:3]
    return [block]


def number(node: Node, scopes: Sequence[Node]) -> tuple[int, Place] | None:
    for one in (node, *defined(node, scopes)):
        found = INTEGER.fullmatch(text_of(one).strip())
        if found is not None:
            first = one.start_byte + text_of(one).index(found[1])
            return int(found[1]), Place(first, first + len(found[1]))
    return None


def defined(node: Node, scopes: Sequence[Node]) -> list[Node]:
    """Return a name's definition if the innermost scope that defines the name does so once."""
    if node.type != "identifier":
        return []
    for scope in scopes:
        found = list(definitions_in(scope, text_of(node)))
        if found:
            return [one for one in found if one is not None] if len(found) == 1 else []
    return []


def definitions_in(scope: Node, name: str) -> Iterator[Node | None]:
    """Yield values that a scope itself gives a name; None for a missing or later value."""
    for child in scope.named_children:
        if child.type == "preproc_def" and has(child, "name", name):
            yield child.child_by_field_name("value")
        elif child.type == "declaration":
            for one in child.named_children:
                declared = declared_name(one)
                if declared is not None and text_of(declared) == name:
                    yield one.child_by_field_name("value")
        elif child.type == "expression_statement":
            for one in child.named_children:
                if one.type == "assignment_expression" and has(one, "left", name):
                    yield None


def has(node: Node, field: str, text: str) -> bool:
    part = node.child_by_field_name(field)
    return part is not None and text_of(part) == text


def repetitions(node: Node, value: int) -> list[Place]:
    """Return where a grid repeats a block's size, and the number below that size next to it."""
    written = [one for one in descendants(node) if one.type == "number_literal"]
    found = [(int(text_of(one)), one) for one in written if text_of(one).isdigit()]
    if value not in [number for number, _ in found]:
        return []
    return [
        Place(one.start_byte, one.end_byte, less=value - number)
        for number, one in found
        if number in (value, value - 1)
    ]


def descendants(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        yield from descendants(child)
