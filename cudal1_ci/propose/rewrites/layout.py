"""Preserve the author's layout of calls, bodies and parenthesized expressions."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

TIGHT = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def with_argument(call: cst.Call, keyword: str, value: cst.BaseExpression) -> cst.Call:
    """Return a call with one more keyword argument, laid out like the last one: on its own line, or
    with a trailing comma.
    """
    new = cst.Arg(keyword=cst.Name(keyword), value=value, equal=TIGHT)
    if not call.args:
        return call.with_changes(args=[new])
    *before, last = call.args
    if before and isinstance(before[-1].comma, cst.Comma):
        between = without_comments(before[-1].comma.whitespace_after)
    elif isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        between = without_comments(call.whitespace_before_args)
    else:
        between = cst.SimpleWhitespace(" ")
    end = closing(last)
    if is_line_end(between) and is_line_end(end):
        between, end = with_comments_of(between, end), without_comments(end)
    kept = last.with_changes(
        comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace("")
    )
    return call.with_changes(args=[*before, kept, closed(new, end, last)])


def with_arguments(call: cst.Call, kept: Sequence[cst.Arg]) -> cst.Call:
    """Return a call with only some of its arguments; the last one ends as the last one did."""
    if not kept:
        return call.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))
    *before, last = kept
    if last is call.args[-1]:
        return call.with_changes(args=kept)
    end, own = without_comments(closing(call.args[-1])), closing(last)
    if is_line_end(end) and is_line_end(own):
        end = with_comments_of(end, own)
    return call.with_changes(args=[*before, closed(last, end, call.args[-1])])


def closing(argument: cst.Arg) -> cst.BaseParenthesizableWhitespace:
    """Return what is behind an argument and its comma."""
    comma = argument.comma
    return comma.whitespace_after if isinstance(comma, cst.Comma) else argument.whitespace_after_arg


def closed(argument: cst.Arg, end: cst.BaseParenthesizableWhitespace, like: cst.Arg) -> cst.Arg:
    """Return an argument as the last one, with a comma if another one has it."""
    if isinstance(like.comma, cst.Comma):
        comma = like.comma.with_changes(whitespace_after=end)
        return argument.with_changes(comma=comma, whitespace_after_arg=like.whitespace_after_arg)
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)


def is_line_end(space: cst.BaseParenthesizableWhitespace) -> bool:
    return isinstance(space, cst.ParenthesizedWhitespace)


def without_comments(
    space: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    """Return the same line end and indentation, without comments."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    line = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=line, empty_lines=())


def with_comments_of(
    space: cst.BaseParenthesizableWhitespace, other: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """Return the comments of one line end before the indentation of another."""
    assert isinstance(other, cst.ParenthesizedWhitespace)
    return space.with_changes(first_line=other.first_line, empty_lines=other.empty_lines)


def with_first_line(function: cst.FunctionDef, line: str) -> cst.FunctionDef:
    """Return a function with a line before the body, after the docstring."""
    body = list(function.body.body)
    place = 1 if function.get_docstring() is not None else 0
    body.insert(place, cst.parse_statement(line))
    return function.with_changes(body=function.body.with_changes(body=body))


def with_last_line(function: cst.FunctionDef, line: str) -> cst.FunctionDef:
    """Return a function with a line after the body."""
    body = [*function.body.body, cst.parse_statement(line)]
    return function.with_changes(body=function.body.with_changes(body=body))


class Outdent(cst.CSTTransformer):
    """Replace one indentation by another, in lines within an expression."""

    def __init__(self, inner: str, outer: str):
        self.inner = inner
        self.outer = outer

    def leave_ParenthesizedWhitespace(  # noqa: N802
        self,
        original_node: cst.ParenthesizedWhitespace,  # noqa: ARG002
        updated_node: cst.ParenthesizedWhitespace,
    ) -> cst.ParenthesizedWhitespace:
        return updated_node.with_changes(last_line=self.moved(updated_node.last_line))

    def leave_EmptyLine(  # noqa: N802
        self,
        original_node: cst.EmptyLine,  # noqa: ARG002
        updated_node: cst.EmptyLine,
    ) -> cst.EmptyLine:
        return updated_node.with_changes(whitespace=self.moved(updated_node.whitespace))

    def moved(self, space: cst.SimpleWhitespace) -> cst.SimpleWhitespace:
        if not space.value.startswith(self.inner):
            return space
        return cst.SimpleWhitespace(self.outer + space.value[len(self.inner) :])


def without_parentheses_of(old: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression:
    """Return the replacement, laid out for lines whose surrounding parentheses are removed."""
    opening = old.lpar[0].whitespace_after
    ending = old.rpar[-1].whitespace_before
    if not isinstance(opening, cst.ParenthesizedWhitespace):
        return new
    if not isinstance(ending, cst.ParenthesizedWhitespace):
        return new
    changed = new.visit(Outdent(opening.last_line.value, ending.last_line.value))
    assert isinstance(changed, cst.BaseExpression)
    return changed


def with_dot_of(old: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression:
    """Return a call of another method, on its own line if the first method was."""
    if not (isinstance(old, cst.Call) and isinstance(new, cst.Call)):
        return new
    if not (isinstance(old.func, cst.Attribute) and isinstance(new.func, cst.Attribute)):
        return new
    if not old.func.value.deep_equals(new.func.value):
        return new
    return new.with_changes(func=new.func.with_changes(dot=old.func.dot))
