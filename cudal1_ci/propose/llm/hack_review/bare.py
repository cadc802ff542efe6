"""Strip comments and docstrings from code: they compute nothing, and can persuade.

    bare("x = f(y)  # verified to be honest\\n") == "x = f(y)"

Not covered: words in names and in strings that are used, including CUDA in a Python string.
"""

from __future__ import annotations

import ast
import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def bare(text: str) -> str:
    """Return the code without words, in the layout of `ast.unparse`. From text that is not Python
    only C comments are removed.
    """
    try:
        return ast.unparse(_Silent().visit(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return COMMENT.sub("", text)


class _Silent(ast.NodeTransformer):
    """Remove strings that are statements; a body of strings alone becomes `pass`."""

    def visit(self, node: ast.AST) -> ast.AST:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not is_words(one)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        self.generic_visit(node)
        return node


def is_words(node: ast.AST) -> bool:
    """Return whether a statement is only a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
