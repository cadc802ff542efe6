"""Find the wanted definition in an answer, whatever its name is.

    answer, name = entry_in(answer, wanted=("RMSNorm", "ModelNew", "Model"), is_class=True)

A definition under another name gets the first wanted name throughout the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.names import code_of, renamed, uses
from cudal1_ci.propose.target_file import definitions_in

Definition = cst.ClassDef | cst.FunctionDef


def with_entry(
    answer: cst.Module, wanted: Sequence[str], *, is_class: bool
) -> cst.Module | Unusable:
    """Return the answer with the wanted definition under the first of the wanted names."""
    name = wanted[0]
    definitions = list(definitions_in(answer))
    if any(item.name.value == name for item in definitions):
        return answer
    alias = alias_of(answer, name)
    if alias is not None:
        answer = without_alias(answer, name)
        found: str | None = alias
    else:
        found = entry_name(definitions, wanted, is_class=is_class)
    if found is None:
        kind = "class" if is_class else "function"
        has = ", ".join(f"`{item.name.value}`" for item in definitions) or "nothing"
        return Unusable(
            kind="no_entry",
            message=f"The code must define the {kind} `{name}`, and it defines {has}.",
        )
    changed = renamed(answer, found, name)
    if changed is None:
        return Unusable(
            kind="no_entry",
            message=f"The code must define `{name}`; it defines `{found}`, which is the name of a "
            f"local too. Call the definition `{name}`.",
        )
    return changed


def entry_name(
    definitions: Sequence[Definition], wanted: Sequence[str], *, is_class: bool
) -> str | None:
    """Return the only possible definition's name; None if several are possible."""
    kind = cst.ClassDef if is_class else cst.FunctionDef
    fitting = {item.name.value: item for item in definitions if isinstance(item, kind)}
    for name in wanted:
        if name in fitting:
            return name
    similar = [name for name in fitting if wanted[0].lower() in name.lower().replace("_", "")]
    if len(similar) == 1:
        return similar[0]
    if is_class:
        fitting = {name: item for name, item in fitting.items() if is_module(item)}
    used = {name for item in definitions for name in uses(item) - {item.name.value}}
    outer = [name for name, item in fitting.items() if name not in used and not is_kernel(item)]
    return outer[0] if len(outer) == 1 else None


def is_module(item: Definition) -> bool:
    """Return whether a class is a module: its base is one, or it has a `forward`."""
    if not isinstance(item, cst.ClassDef):
        return False
    bases = [code_of(base.value) for base in item.bases]
    if any(base.rpartition(".")[2] == "Function" for base in bases):
        return False  # torch.autograd.Function
    has_forward = any(one.name.value == "forward" for one in definitions_in(item))
    return has_forward or any(base.endswith("Module") for base in bases)


def is_kernel(item: Definition) -> bool:
    """Return whether a definition is a Triton kernel."""
    if not isinstance(item, cst.FunctionDef):
        return False
    decorators = [code_of(one.decorator).partition("(")[0] for one in item.decorators]
    return any(decorator.rpartition(".")[2] == "jit" for decorator in decorators)


def alias_of(answer: cst.Module, name: str) -> str | None:
    """Return `Other` of `name = Other` at the top level, where the answer defines `Other`."""
    defined = {item.name.value for item in definitions_in(answer)}
    for statement in answer.body:
        if is_alias(statement, name):
            value = code_of(statement).partition("=")[2].strip()
            return value if value in defined else None
    return None


def is_alias(statement: cst.CSTNode, name: str) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and len(statement.body) == 1
        and isinstance(one := statement.body[0], cst.Assign)
        and [code_of(target.target) for target in one.targets] == [name]
        and isinstance(one.value, cst.Name)
    )


def without_alias(answer: cst.Module, name: str) -> cst.Module:
    return answer.with_changes(body=[item for item in answer.body if not is_alias(item, name)])
