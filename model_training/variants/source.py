"""Take the text of a generated task apart: imports, statements, the rest.

    program = Program.of(task.text)
    text = program.rendered([Statement.of("x = torch.relu(x)")])

Knows the form that `tasks/draft.py` writes: one class `Model`, whose `forward` ends with
`return x`. Statements that are not exchanged keep their layout. Text only: nothing is run here.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

INDENT = " " * 8
ENTRY = "ModelNew"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Hold a statement of `forward`, not indented."""

    text: str
    node: ast.stmt

    @staticmethod
    def of(text: str) -> list[Statement]:
        """Return the statements of a text."""
        lines = text.splitlines()
        return [
            Statement(text="\n".join(lines[node.lineno - 1 : node.end_lineno]), node=node)
            for node in ast.parse(text).body
        ]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Hold the parts of a task's text; `init` and `signature` are lines as they stand, indented."""

    imports: tuple[str, ...]
    init: tuple[str, ...]
    arguments: tuple[str, ...]
    """Names of what `forward` takes, without `self`."""
    forward: tuple[Statement, ...]
    """Without the `return x` at its end."""

    @staticmethod
    def of(text: str) -> Program | None:
        """Read a text; None for what does not have the form."""
        try:
            module = ast.parse(text)
        except SyntaxError:
            return None
        lines = text.splitlines()

        def source(node: ast.stmt) -> str:
            return "\n".join(lines[node.lineno - 1 : node.end_lineno])

        classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
        if len(classes) != 1 or classes[0].name != "Model":
            return None
        methods = {n.name: n for n in classes[0].body if isinstance(n, ast.FunctionDef)}
        if set(methods) != {"__init__", "forward"}:
            return None
        *body, last = methods["forward"].body
        if not isinstance(last, ast.Return) or ast.unparse(last) != "return x":
            return None
        kinds = (ast.Import, ast.ImportFrom)
        return Program(
            imports=tuple(source(node) for node in module.body if isinstance(node, kinds)),
            init=tuple(source(methods["__init__"]).splitlines()),
            arguments=tuple(one.arg for one in methods["forward"].args.args[1:]),
            forward=tuple(
                Statement(text=textwrap.dedent(source(node)), node=node) for node in body
            ),
        )

    def rendered(self, forward: Sequence[Statement], init: Sequence[str] = ()) -> str:
        """Return the program with these statements as `ModelNew`; `init` are statements at the end
        of `__init__`. Imports that nothing uses are left out, and the sizes, which `__init__` is
        given."""
        parts = [*self.init, *(INDENT + line for line in init), ""]
        parts.append(f"    def forward({', '.join(('self', *self.arguments))}):")
        parts += [textwrap.indent(one.text, INDENT) for one in forward]
        parts.append(f"{INDENT}return x")
        body = f"class {ENTRY}(nn.Module):\n" + "\n".join(parts)
        used = names_in(body)
        imports = [line for line in self.imports if bound_by(line) in used]
        return "\n\n\n".join([in_order(imports), body]) + "\n"


def names_in(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def bound_by(line: str) -> str:
    """Return `nn` of `import torch.nn as nn`."""
    return line.split()[-1].partition(".")[0]


def in_order(imports: Iterable[str]) -> str:
    """Sort imports, the standard library first, each line once."""
    lines = list(dict.fromkeys(imports))
    standard = [line for line in lines if line == "import math"]
    others = [line for line in lines if line not in standard]
    plain = sorted(line for line in others if line.startswith("import "))
    named = sorted(line for line in others if line.startswith("from "))
    return "\n\n".join(filter(None, ("\n".join(standard), "\n".join(plain + named))))
