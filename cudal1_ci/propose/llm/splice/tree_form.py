"""Splice an answer into the user's file: replace the target, add what it needs, keep all else.

    text = with_answer(text, "RMSNorm", code, others=())

Everything outside the replaced definitions, the helpers above them and the new imports is unchanged
to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.drop_in import Definition, is_placeholder, merged
from cudal1_ci.propose.llm.splice.entry import is_kernel, with_entry
from cudal1_ci.propose.llm.splice.helpers import known_of, packed
from cudal1_ci.propose.llm.splice.imports import with_imports
from cudal1_ci.propose.llm.splice.interface import signature_problem
from cudal1_ci.propose.llm.splice.names import BUILTINS, code_of, uses
from cudal1_ci.propose.target_file import definitions_in, find, parsed

MARK = "\ufeff"
"""A byte order mark, which libcst would drop."""


def with_answer(
    text: str,
    qualname: str,
    code: str,
    *,
    others: Sequence[str] = (),
    own: str = "",
    is_launched_elsewhere: bool = False,
) -> str | Unusable:
    """Return the file's text with the answer in it. `others` are the file's definitions that launch
    a kernel; the answer's versions replace them too. A kernel that other files also launch keeps
    its parameters. `own` is the file's package.
    """
    file = parsed(text.removeprefix(MARK))
    original = find(file, qualname) if file is not None else None
    if file is None or original is None:
        return unsupported(f"`{qualname}` is not in the file, or the file is not Python")
    answer = parsed(code.replace("\n", file.default_newline))
    if answer is None:
        return Unusable(kind="syntax", message="The code is not Python that can be read.")
    defined = {item.name.value for item in definitions_in(answer)}
    launchers = [name for name in others if find(file, name)]
    has_target = not defined.isdisjoint(qualname.split("."))
    if not has_target and (only := [name for name in launchers if name in defined]):
        qualname = only[0]
    named = replaced_definition(file, answer, qualname)
    if isinstance(named, Unusable):
        return named
    answer, place = named
    places = {place.rpartition(".")[2]: place}
    places |= {name: name for name in launchers if name in defined}
    places |= {name: name for name in own_kernels(file, answer, places)}
    luggage = packed(answer, file, places)
    if isinstance(luggage, Unusable):
        return luggage
    are_all_replaced = (
        bool(launchers) and set(launchers) <= set(places) and not is_launched_elsewhere
    )
    replaced = replacements(
        file, luggage.answer, places, target=place, may_change_signature=are_all_replaced
    )
    if isinstance(replaced, Unusable):
        return replaced
    anchor = first_of(file, [where.partition(".")[0] for where in places.values()])
    changed = file.visit(Splice(replaced, anchor, luggage.statements))
    assert isinstance(changed, cst.Module)
    spliced = with_imports(changed, luggage.imports, own).code
    mark = MARK if text.startswith(MARK) else ""
    return mark + spliced


def unsupported(what: str) -> Unusable:
    return Unusable(kind="unsupported", message=f"The answer cannot be put into the file: {what}.")


def replaced_definition(
    file: cst.Module, answer: cst.Module, qualname: str
) -> tuple[cst.Module, str] | Unusable:
    """Return the answer and the file's definition that it replaces. That definition is the
    outermost part of the target's name that the answer defines, or else the target, under any name.
    """
    parts = qualname.split(".")
    defined = {item.name.value for item in definitions_in(answer)}
    for i, part in enumerate(parts):
        if part in defined:
            return answer, ".".join(parts[: i + 1])
    is_class = isinstance(find(file, qualname), cst.ClassDef)
    wanted = (parts[-1], f"{parts[-1]}New", "ModelNew", "Model")
    named = with_entry(answer, wanted, is_class=is_class)
    return named if isinstance(named, Unusable) else (named, qualname)


def own_kernels(file: cst.Module, answer: cst.Module, places: Mapping[str, str]) -> list[str]:
    """Return the file's Triton kernels that the answer rewrites with the same parameters and only
    replaced code uses. They are replaced, so that no second version remains.
    """
    inside = {find(file, where.partition(".")[0]) for where in places.values()}
    found = []
    for new in definitions_in(answer):
        name = new.name.value
        old = find(file, name)
        if name in places or not (is_kernel(new) and old is not None and is_kernel(old)):
            continue
        assert isinstance(old, cst.FunctionDef)
        assert isinstance(new, cst.FunctionDef)
        users = [item for item in definitions_in(file) if item is not old and name in uses(item)]
        if signature_problem(old, new, name) is None and set(users) <= inside:
            found.append(name)
    return found


def replacements(
    file: cst.Module,
    answer: cst.Module,
    places: Mapping[str, str],
    *,
    target: str,
    may_change_signature: bool,
) -> dict[cst.CSTNode, Definition] | Unusable:
    """Return new definitions for the file's, by the answer's names. The target's parameters may
    change if all its callers are replaced.
    """
    bases = Bases(file, answer)
    found: dict[cst.CSTNode, Definition] = {}
    for name, where in places.items():
        original, new = find(file, where), find(answer, name)
        assert original is not None
        assert new is not None
        if where == target and isinstance(new, cst.FunctionDef) and is_placeholder(new.body):
            return Unusable(
                kind="placeholder", message=f"`{name}` of the answer has no body. Write all of it."
            )
        one = merged(
            original,
            new,
            bases.chosen,
            where=where,
            may_change_signature=where == target and may_change_signature,
        )
        if isinstance(one, Unusable):
            return one
        if one is not original:
            found[original] = one
    if not found:
        return Unusable(
            kind="unchanged",
            message=f"`{target}` of the answer is what the file has already. Write code that "
            "computes the same faster.",
        )
    return found


class Bases:
    """Choose between the bases of the user's class and of the answer's."""

    def __init__(self, file: cst.Module, answer: cst.Module):
        self.here = known_of(file)
        self.there = known_of(answer)

    def chosen(self, original: cst.ClassDef, answer: cst.ClassDef) -> Sequence[cst.Arg]:
        """Return the user's bases, unless the answer names others that can be imported. A plain
        module would lose what a class of the project does.
        """
        new = [self.meaning(base, self.there.imports) for base in answer.bases]
        is_better = all(base not in {"torch.nn.Module", "nn.Module", "object"} for base in new)
        can_be_had = all(self.can_be_had(base) for base in answer.bases)
        return answer.bases if new and is_better and can_be_had else original.bases

    def meaning(self, base: cst.Arg, imports: Mapping[str, str]) -> str:
        head, dot, rest = code_of(base.value).partition(".")
        return imports.get(head, self.here.imports.get(head, head)) + dot + rest

    def can_be_had(self, base: cst.Arg) -> bool:
        head = code_of(base.value).partition(".")[0]
        return head in self.there.names | self.here.at_run_time | BUILTINS


def first_of(file: cst.Module, names: Sequence[str]) -> Definition:
    """Return the definition that comes first in the file."""
    wanted = [find(file, name) for name in names]
    return next(item for item in definitions_in(file) if item in wanted)


OUTSIDE_OF_FUNCTIONS = (
    cst.Module,
    cst.BaseCompoundStatement,
    cst.IndentedBlock,
    cst.Else,
    cst.ExceptHandler,
    cst.Finally,
)


class Splice(cst.CSTTransformer):
    """Replace old definitions by new ones, and insert statements before one of them."""

    def __init__(
        self,
        replaced: Mapping[cst.CSTNode, Definition],
        anchor: Definition,
        statements: Sequence[cst.BaseStatement],
    ):
        self.replaced = replaced
        self.anchor = anchor
        self.statements = statements
        self.depth = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.IndentedBlock):
            self.depth += 1
        return isinstance(node, OUTSIDE_OF_FUNCTIONS) and not isinstance(node, cst.FunctionDef)

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        if isinstance(original_node, cst.IndentedBlock):
            self.depth -= 1
        new = self.replaced.get(original_node, updated_node)
        if original_node is not self.anchor or not self.statements:
            return new  # type: ignore[return-value]
        before = laid_out(self.statements, 1 if self.depth else 2)
        assert isinstance(new, cst.ClassDef | cst.FunctionDef)
        return cst.FlattenSentinel([*before, apart(new, 1 if self.depth else 2)])  # type: ignore[list-item]


def laid_out(statements: Sequence[cst.BaseStatement], num_lines: int) -> list[cst.BaseStatement]:
    """Return statements with the empty lines that definitions have around them."""
    found: list[cst.BaseStatement] = []
    for i, item in enumerate(statements):
        is_near = i > 0 and not is_definition(item) and not is_definition(statements[i - 1])
        found.append(item if is_near else apart(item, num_lines))
    return found


def apart(item: cst.BaseStatement, num_lines: int) -> cst.BaseStatement:
    """Return a statement with at least that many empty lines above it and its comments."""
    lines = list(getattr(item, "leading_lines", ()))
    first_comment = next((i for i, line in enumerate(lines) if line.comment), len(lines))
    missing = max(0, num_lines - first_comment)
    return item.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * missing + lines)


def is_definition(item: cst.CSTNode) -> bool:
    return isinstance(item, cst.ClassDef | cst.FunctionDef)
