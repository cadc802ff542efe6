"""Splice a CUDA answer into the user's CUDA text.

An answer with all functions of a file replaces the whole file, unless it changes functions
unrelated to the kernel. Otherwise its kernel replaces the file's, and so do its versions of the
file's functions that launch the kernel. New functions and other definitions go before the kernel,
and new `#include` lines after the others. All other text is unchanged to the byte. This module
knows the grammar, not the preprocessor: the verifier finds out whether the text compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.source.cuda import cuda_parser, declared_name, function_definitions, text_of

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(?:const|__restrict__|__restrict|restrict|volatile)\b")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*$", re.MULTILINE)
_MACRO = re.compile(r"#\s*define\s+(\w+)")


@dataclass(frozen=True)
class Piece:
    """A function with its template, or another definition of a text."""

    name: str
    """Name without namespaces; empty if the piece is not a function."""
    text: str
    start: int
    """Byte where the piece starts."""
    end: int
    head: str = ""
    parameters: tuple[str, ...] = ()
    """Types, without qualifiers that callers do not see."""


def with_kernel(text: str, qualname: str, answer: str) -> str | Unusable:
    """Return a CUDA text with the answer's kernel in place of its own."""
    name = qualname.rpartition("::")[2]
    newline = "\r\n" if "\r\n" in text else "\n"
    answer = answer.replace("\r\n", "\n").replace("\n", newline)
    mine, theirs = functions(text), functions(answer)
    old = [piece for piece in mine if piece.name == name]
    new = [piece for piece in theirs if piece.name == name]
    if len(old) != 1:
        return Unusable(
            kind="unsupported",
            message=f"`{name}` is defined {len(old)} times in the file; it cannot be replaced.",
        )
    if not new:
        return no_kernel(name, theirs)
    if len(new) > 1:
        return Unusable(
            kind="unsupported", message=f"The code defines `{name}` {len(new)} times; once will do."
        )
    if is_whole_file(text, mine, answer, theirs, name):
        if answer.strip() == text.strip():
            return unchanged(name)
        changed = {p.name: p for p in theirs if p.name in changed_names(mine, theirs)}
        return signature_problem(mine, changed, name) or answer
    known = {squeezed(piece.text) for piece in mine}
    replaced = {
        piece.name: piece
        for piece in theirs
        if is_replacement(piece, name, mine) and squeezed(piece.text) not in known
    }
    if not replaced:
        return unchanged(name)
    problem = signature_problem(mine, replaced, name)
    if problem is not None:
        return problem
    added = [p for p in pieces(answer) if is_new(p, text, mine)]
    clash = macro_clash(added, text)
    if clash is not None:
        return clash
    return assembled(text, mine, replaced, added, answer, newline)


def no_kernel(name: str, theirs: Sequence[Piece]) -> Unusable:
    has = ", ".join(f"`{piece.name}`" for piece in theirs) or "no function"
    return Unusable(
        kind="no_entry", message=f"The code must define the kernel `{name}`, and it has {has}."
    )


def unchanged(name: str) -> Unusable:
    return Unusable(
        kind="unchanged",
        message=f"`{name}` of the answer is what the file has already. Write a faster kernel.",
    )


def is_whole_file(
    text: str, mine: Sequence[Piece], answer: str, theirs: Sequence[Piece], name: str
) -> bool:
    """Return whether an answer has all functions and headers of a file, and changes nothing
    unrelated to the kernel. Verification of the kernel calls no unrelated code.
    """
    names = {piece.name for piece in theirs}
    has_all = all(piece.name in names for piece in mine)
    if not (has_all and includes(text) <= includes(answer) and includes(answer)):
        return False
    changed, about = changed_names(mine, theirs), concerned(mine, name)
    if all(is_binding(piece) or piece.name in about for piece in mine):
        return changed <= about
    return changed <= about and beside_functions(text) <= beside_functions(answer)


def is_binding(piece: Piece) -> bool:
    return piece.name.startswith(("PYBIND11_MODULE", "TORCH_LIBRARY"))


def beside_functions(text: str) -> set[str]:
    """Return the macros, types and constants of a text."""
    return {squeezed(piece.text) for piece in pieces(text) if not piece.name}


def changed_names(mine: Sequence[Piece], theirs: Sequence[Piece]) -> set[str]:
    """Return the functions of a file that an answer changes."""
    said = {squeezed(piece.text) for piece in theirs}
    return {piece.name for piece in mine if squeezed(piece.text) not in said}


def concerned(mine: Sequence[Piece], name: str) -> set[str]:
    """Return a kernel, its launchers, and what only these use. Bindings lead to others."""
    plain = [p for p in mine if not is_binding(p)]
    found = {name}
    while True:
        above = {p.name for p in plain if any(mentions(p, one) for one in found & host(mine, name))}
        below = {
            p.name
            for p in plain
            if (users := {q.name for q in plain if q is not p and mentions(q, p.name)})
            and users <= found
        }
        if above | below <= found:
            return found
        found |= above | below


def host(mine: Sequence[Piece], name: str) -> set[str]:
    """Return the kernel and the host functions through which it is called."""
    return {name} | {p.name for p in mine if not re.search(r"__(?:device|global)__", p.head)}


def mentions(piece: Piece, name: str) -> bool:
    return piece.name != name and re.search(rf"\b{re.escape(name)}\b", piece.text) is not None


def is_replacement(piece: Piece, name: str, mine: Sequence[Piece]) -> bool:
    """Return whether a piece is the kernel, or a function of the file that launches it."""
    is_mine = any(piece.name == other.name for other in mine)
    return piece.name == name or (is_mine and re.search(rf"\b{name}\b", piece.text) is not None)


def signature_problem(
    mine: Sequence[Piece], replaced: dict[str, Piece], kernel: str
) -> Unusable | None:
    """Return the error of a changed function whose parameters others rely on. The kernel's
    parameters may change if all its launchers are replaced.
    """
    callers = {p.name for p in mine if p.name != kernel and re.search(rf"\b{kernel}\b", p.text)}
    for old in mine:
        new = replaced.get(old.name)
        if new is None or (new.parameters, template(new)) == (old.parameters, template(old)):
            continue
        if old.name == kernel and callers and callers <= set(replaced):
            continue
        return Unusable(
            kind="signature",
            message=f"`{old.name}` must keep its template and its parameters "
            f"`({', '.join(old.parameters)})`, and the answer has `({', '.join(new.parameters)})`: "
            "its launches stay as they are.",
        )
    return None


def template(piece: Piece) -> str:
    match = re.match(r"template\s*<[^{;]*?>(?=\s*[\w_])", squeezed(piece.head))
    return match[0] if match else ""


def is_new(piece: Piece, text: str, mine: Sequence[Piece]) -> bool:
    """Return whether a piece of an answer is neither in the file nor a function of the file."""
    if piece.name:
        return all(piece.name != other.name for other in mine)
    return squeezed(piece.text) not in squeezed(text)


def macro_clash(added: Sequence[Piece], text: str) -> Unusable | None:
    known = set(_MACRO.findall(text))
    for piece in added:
        for name in _MACRO.findall(piece.text):
            if name in known:
                return Unusable(
                    kind="name_clash",
                    message=f"`#define {name}` has another value in the file. Give the macro a "
                    "name that the file does not have.",
                )
    return None


def assembled(
    text: str,
    mine: Sequence[Piece],
    replaced: dict[str, Piece],
    added: Sequence[Piece],
    answer: str,
    newline: str,
) -> str:
    """Return the file's text with replaced functions, new pieces before the first, and the answer's
    headers.
    """
    source = text.encode()
    first = min(piece.start for piece in mine if piece.name in replaced)
    for old in sorted(mine, key=lambda piece: -piece.start):
        new = replaced.get(old.name)
        if new is None:
            continue
        before = ""
        if old.start == first:
            before = "".join(piece.text.strip() + newline * 2 for piece in added)
        source = source[: old.start] + (before + new.text).encode() + source[old.end :]
    head, rest = source[:first].decode(), source[first:].decode()
    known = includes(text)
    missing = [line.strip() for line in _INCLUDE.findall(answer) if squeezed(line) not in known]
    lines = "".join(line + newline for line in dict.fromkeys(missing))
    present = list(_INCLUDE.finditer(head))
    at = head.find("\n", present[-1].start()) + 1 if present else 0
    return head[:at] + lines + head[at:] + rest


def includes(text: str) -> set[str]:
    return {squeezed(line) for line in _INCLUDE.findall(text)}


def squeezed(text: str) -> str:
    """Return code without comments and insignificant spaces."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(_COMMENT.sub(" ", text).split()))


# --- reading ------------------------------------------------------------------------------------


def functions(text: str) -> list[Piece]:
    """Return functions with a body, with their templates."""
    source = text.encode()
    return [
        function_piece(source, node)
        for _, node in function_definitions(cuda_parser().parse(source).root_node, ())
        if node.child_by_field_name("body") is not None
        and declared_name(node.child_by_field_name("declarator")) is not None
    ]


def function_piece(source: bytes, node: Node) -> Piece:
    outer = whole(node)
    body = node.child_by_field_name("body")
    name = declared_name(node.child_by_field_name("declarator"))
    assert body is not None
    assert name is not None
    return Piece(
        name=text_of(name).rpartition("::")[2],
        text=source[outer.start_byte : outer.end_byte].decode("utf-8", "replace"),
        start=outer.start_byte,
        end=outer.end_byte,
        head=source[outer.start_byte : body.start_byte].decode("utf-8", "replace"),
        parameters=tuple(parameter_types(source, node)),
    )


def whole(node: Node) -> Node:
    """Return a function with its template and its `extern "C"`."""
    while node.parent is not None and (
        node.parent.type == "template_declaration"
        or (
            node.parent.type == "linkage_specification"
            and node.parent.child_by_field_name("body") == node
        )
    ):
        node = node.parent
    return node


def parameter_types(source: bytes, function: Node) -> Iterator[str]:
    """Yield the types of a function's parameters, without names, comments and qualifiers."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    if declarator is None:
        return
    listed = declarator.child_by_field_name("parameters")
    for parameter in listed.named_children if listed is not None else ():
        if parameter.type == "comment":
            continue
        text = source[parameter.start_byte : parameter.end_byte].decode("utf-8", "replace")
        name = parameter_name(parameter.child_by_field_name("declarator"))
        if name is not None:
            at = name.start_byte - parameter.start_byte
            raw = text.encode()
            text = (raw[:at] + raw[at + len(text_of(name).encode()) :]).decode("utf-8", "replace")
        yield squeezed(_QUALIFIERS.sub(" ", _COMMENT.sub(" ", text)))


def parameter_name(declarator: Node | None) -> Node | None:
    """Return the name at the end of a parameter's declarator, behind `*`, `&` and brackets."""
    while declarator is not None and declarator.type != "identifier":
        inner = [child for child in declarator.named_children if "qualifier" not in child.type]
        declarator = inner[-1] if inner else None
    return declarator


def pieces(text: str) -> Iterator[Piece]:
    """Yield the functions, macros, types and constants at the top of a text or of its namespaces.
    Headers, bindings and comments are excluded.
    """
    source = text.encode()
    known = {piece.start: piece for piece in functions(text)}
    for node in items(cuda_parser().parse(source).root_node):
        if node.start_byte in known:
            if not is_binding(known[node.start_byte]):
                yield known[node.start_byte]
        elif node.type not in {"comment", "preproc_include", ";"}:
            # The grammar leaves the semicolon behind a type to its surroundings.
            closing = re.compile(rb"\s*;").match(source, node.end_byte)
            end = closing.end() if closing is not None else node.end_byte
            piece = source[node.start_byte : end].decode("utf-8", "replace")
            yield Piece(name="", text=piece, start=node.start_byte, end=end)


def items(node: Node) -> Iterator[Node]:
    for child in node.children:
        body = child.child_by_field_name("body")
        if child.type == "namespace_definition" and body is not None:
            yield from (one for one in items(body) if one.type not in {"{", "}"})
        else:
            yield child
