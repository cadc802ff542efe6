"""Merge a model's definition into the user's: keep what the user wrote where the answer changes no
behaviour.

Signatures, annotations, decorators, class attributes, bases, docstrings and comments remain.
Methods that the answer leaves out remain; methods that it repeats unchanged are the same to the
byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.interface import missing_state, signature_problem
from cudal1_ci.propose.llm.splice.names import binds, code_of, dump, is_text

Definition = cst.ClassDef | cst.FunctionDef
Bases = Callable[[cst.ClassDef, cst.ClassDef], Sequence[cst.Arg]]


def merged(
    original: Definition,
    answer: Definition,
    bases: Bases,
    *,
    where: str,
    may_change_signature: bool = False,
) -> Definition | Unusable:
    """Return the answer's definition as a drop-in for the user's. `bases` chooses between the bases
    of two classes. `may_change_signature` holds for a function if all its callers are replaced.
    """
    if isinstance(original, cst.ClassDef) and isinstance(answer, cst.ClassDef):
        return merged_class(original, answer, bases, where=where)
    if isinstance(original, cst.FunctionDef) and isinstance(answer, cst.FunctionDef):
        return merged_function(
            original, answer, where=where, may_change_signature=may_change_signature
        )
    kinds = ("class", "function") if isinstance(original, cst.ClassDef) else ("function", "class")
    return Unusable(
        kind="signature",
        message=f"`{where}` is a {kinds[0]} and the answer makes it a {kinds[1]}. Keep it a "
        f"{kinds[0]}.",
    )


def merged_function(
    original: cst.FunctionDef,
    answer: cst.FunctionDef,
    *,
    where: str,
    may_change_signature: bool = False,
) -> cst.FunctionDef | Unusable:
    """Return one merged function or method."""
    problem = signature_problem(original, answer, where)
    if problem is not None and not may_change_signature:
        return problem
    if is_placeholder(answer.body):
        return original
    new = answer.with_changes(
        decorators=kept_decorators(original, answer),
        leading_lines=kept_comments(original, answer),
        body=with_docstring(answer.body, docstring_of(original)),
    )
    if problem is None:
        new = new.with_changes(
            params=original.params,
            returns=original.returns,
            whitespace_before_params=original.whitespace_before_params,
            lines_after_decorators=original.lines_after_decorators,
        )
    return original if dump(new) == dump(original) else new


def merged_class(
    original: cst.ClassDef, answer: cst.ClassDef, bases: Bases, *, where: str
) -> cst.ClassDef | Unusable:
    """Return one class merged member by member, in the user's order."""
    theirs = {key_of(item): item for item in members(answer) if not is_text(item)}
    body: list[cst.BaseStatement] = []
    for item in members(original):
        key = key_of(item)
        kept = item
        if isinstance(item, cst.FunctionDef | cst.ClassDef) and key in theirs:
            other = theirs.pop(key)
            if isinstance(other, cst.FunctionDef | cst.ClassDef):
                one = merged(item, other, bases, where=f"{where}.{item.name.value}")
                if isinstance(one, Unusable):
                    return one
                kept = one
        elif key in theirs:
            other = theirs.pop(key)
            kept = other if key.startswith("_") and not key.startswith("__") else item
        body.append(kept)
    body = with_new_members(body, [key_of(item) for item in members(answer)], theirs)
    if not body:
        return original
    docstring = docstring_of(answer) or docstring_of(original)
    if docstring is not None:
        first = body[0] if body[0] in members(original) else separated(body[0])
        body = [docstring, first, *body[1:]]
    block = answer.body if isinstance(answer.body, cst.IndentedBlock) else cst.IndentedBlock([])
    if isinstance(original.body, cst.IndentedBlock):
        block = original.body
    new = original.with_changes(
        bases=bases(original, answer),
        decorators=kept_decorators(original, answer),
        leading_lines=kept_comments(original, answer),
        body=block.with_changes(body=body),
    )
    if dump(new) == dump(original):
        return original
    return missing_state(original, new) or new


def with_new_members(
    body: list[cst.BaseStatement], order: Sequence[str], new: dict[str, cst.BaseStatement]
) -> list[cst.BaseStatement]:
    """Return a class body with the answer's new members, each behind its predecessor in the answer.
    Attributes without a predecessor come first, methods without one last.
    """
    body = list(body)
    for i, key in enumerate(order):
        if key not in new:
            continue
        item = new[key]
        places = [at for at, other in enumerate(body) if key_of(other) in order[:i]]
        is_method = isinstance(item, cst.FunctionDef | cst.ClassDef)
        at = places[-1] + 1 if places else len(body) if is_method else 0
        while 0 < at < len(body) and is_text(body[at]):
            at += 1  # the author's description of the attribute above
        if is_method and at > 0:
            item = separated(item)
        body.insert(at, item)
        if at + 1 < len(body) and at == 0:
            body[1] = separated(body[1]) if is_definition(body[1]) else body[1]
    return body


def separated(item: cst.BaseStatement) -> cst.BaseStatement:
    """Return a statement with at least one empty line before it."""
    lines = getattr(item, "leading_lines", ())
    if any(line.comment is None for line in lines):
        return item
    return item.with_changes(leading_lines=[cst.EmptyLine(indent=False), *lines])


def is_definition(item: cst.CSTNode) -> bool:
    return isinstance(item, cst.FunctionDef | cst.ClassDef)


def members(definition: cst.ClassDef) -> list[cst.BaseStatement]:
    """Return the statements of a class without its docstring and without `pass`."""
    if not isinstance(definition.body, cst.IndentedBlock):
        return []
    statements = list(definition.body.body)
    if docstring_of(definition) is not None:
        statements = statements[1:]
    return [item for item in statements if is_text(item) or not is_empty(item)]


def key_of(item: cst.CSTNode) -> str:
    """Return the key of a member; setters and overloads are members of their own."""
    if isinstance(item, cst.FunctionDef):
        decorators = [code_of(one.decorator) for one in item.decorators]
        roles = [one.rpartition(".")[2] for one in decorators]
        for role, decorator in zip(roles, decorators, strict=True):
            if role in {"setter", "deleter", "getter"}:
                return f"{item.name.value}.{role}"
            if role == "overload":
                return f"{decorator} {code_of(item.params)} {item.name.value}"
    names = sorted(binds(item))
    return ",".join(names) if names else code_of(item).strip()


def is_empty(item: cst.CSTNode) -> bool:
    """Return whether a statement is `pass`, `...`, or an unused string."""
    return isinstance(item, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Pass)
        or (
            isinstance(small, cst.Expr) and isinstance(small.value, cst.Ellipsis | cst.SimpleString)
        )
        for small in item.body
    )


def is_placeholder(body: cst.BaseSuite) -> bool:
    """Return whether a body has only `...`, `pass` or a docstring."""
    if isinstance(body, cst.IndentedBlock):
        return all(is_empty(item) for item in body.body)
    return is_empty(cst.SimpleStatementLine(body.body))  # type: ignore[arg-type]


def docstring_of(definition: Definition) -> cst.SimpleStatementLine | None:
    """Return the statement that is a definition's docstring."""
    if not isinstance(definition.body, cst.IndentedBlock) or not definition.body.body:
        return None
    first = definition.body.body[0]
    return first if isinstance(first, cst.SimpleStatementLine) and is_text(first) else None


def with_docstring(body: cst.BaseSuite, docstring: cst.SimpleStatementLine | None) -> cst.BaseSuite:
    """Return a body with a docstring, unless it has its own."""
    if docstring is None:
        return body
    if isinstance(body, cst.SimpleStatementSuite):
        body = cst.IndentedBlock([cst.SimpleStatementLine(body.body)])
    assert isinstance(body, cst.IndentedBlock)
    first = cst.FunctionDef(cst.Name("f"), cst.Parameters(), body)
    return body if docstring_of(first) else body.with_changes(body=[docstring, *body.body])


def kept_decorators(original: Definition, answer: Definition) -> Sequence[cst.Decorator]:
    """Return the user's decorators with those that the answer adds, outermost first in the answer's
    order.
    """
    mine = [code_of(one.decorator) for one in original.decorators]
    theirs = [code_of(one.decorator) for one in answer.decorators]
    if set(mine) <= set(theirs):
        return original.decorators if len(mine) == len(theirs) else answer.decorators
    added = [one for one in answer.decorators if code_of(one.decorator) not in mine]
    return [*original.decorators, *added]


def kept_comments(original: Definition, answer: Definition) -> Sequence[cst.EmptyLine]:
    """Return the lines above the user's definition, then the comments that the answer adds."""
    mine = {line.comment.value for line in original.leading_lines if line.comment}
    added = [
        line for line in answer.leading_lines if line.comment and line.comment.value not in mine
    ]
    return [*original.leading_lines, *added]
