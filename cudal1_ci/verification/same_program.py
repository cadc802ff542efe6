"""Tell whether a candidate is its reference in another layout: then it cannot be faster.

is_same_program(TextProgram(source=text + "# faster\\n", entry="Model"), reference)
"""

from __future__ import annotations

import ast

from cudal1_ci.records import Program, TextProgram


def is_same_program(program: Program, reference: Program) -> bool:
    """Return whether another text has the reference's statements, but for comments, layout,
    docstrings and the name of its entry. The reference's own text is timed where it is asked for,
    as a baseline."""
    if not isinstance(program, TextProgram) or not isinstance(reference, TextProgram):
        return False
    if program.source == reference.source:
        return False
    try:
        return statements(program) == statements(reference)
    except (SyntaxError, ValueError, RecursionError):
        return False


def statements(program: TextProgram) -> str:
    """Return a text's syntax tree as text. Raises: SyntaxError, ValueError, RecursionError."""
    tree = ast.parse(program.source)
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body):
                node.body = [one for one in body if not is_text(one)] or [ast.Pass()]
        if isinstance(node, ast.ClassDef) and node.name == program.entry:
            node.name = "Model"
        if isinstance(node, ast.Name) and node.id == program.entry:
            node.id = "Model"
    return ast.dump(tree)


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a string alone, as a docstring is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
