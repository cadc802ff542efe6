"""Preserve the author's layout of calls, bodies and parenthesized expressions."""

from __future__ import annotations

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


def with_last_line(function: cst.FunctionDef, line: str) -> cst.FunctionDef:
    """Return a function with a line after the body."""
    body = [*function.body.body, cst.parse_statement(line)]
    return function.with_changes(body=function.body.with_changes(body=body))
