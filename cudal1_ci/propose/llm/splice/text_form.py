"""Turn an answer for a KernelBench-form problem into the file that the verifier loads.

The answer loses what the verifier makes itself (`get_inputs`, `get_init_inputs`) and what runs when
the file is a script. It gains obvious imports that it forgot; nothing else changes.
"""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.llm.answer import Unusable
from cudal1_ci.propose.llm.splice.entry import with_entry
from cudal1_ci.propose.llm.splice.imports import OBVIOUS, obvious, with_imports
from cudal1_ci.propose.llm.splice.names import binds, code_of, dump, renamed, uses
from cudal1_ci.propose.target_file import find, parsed
from cudal1_ci.records import TextProgram

ENTRY = "ModelNew"
JUDGES_OWN = frozenset({"get_inputs", "get_init_inputs"})


def as_text_program(reference: TextProgram, code: str) -> TextProgram | Unusable:
    """Return the answer's code as a program."""
    module = parsed(code)
    if module is None:
        return Unusable(kind="syntax", message="The code is not Python that can be read.")
    original = parsed(reference.source)
    definition = find(original, reference.entry) if original is not None else None
    is_class = not isinstance(definition, cst.FunctionDef)
    body = [item for item in module.body if not is_left_out(item)]
    answer = with_entry(
        module.with_changes(body=body), (ENTRY, reference.entry, "Model"), is_class=is_class
    )
    if isinstance(answer, Unusable):
        return answer
    problem = no_forward(answer) if is_class else None
    if problem is not None:
        return problem
    if original is not None and says_the_same(answer, original, reference.entry):
        return Unusable(
            kind="unchanged",
            message="The code is the reference itself. Write code that computes the same faster.",
        )
    return TextProgram(source=with_obvious_imports(answer).code, entry=ENTRY)


def is_left_out(item: cst.CSTNode) -> bool:
    if isinstance(item, cst.FunctionDef):
        return item.name.value in JUDGES_OWN
    return isinstance(item, cst.If) and "__name__" in code_of(item.test)


def no_forward(answer: cst.Module) -> Unusable | None:
    """Return the error of a module whose own class has no `forward`."""
    entry = find(answer, ENTRY)
    if not isinstance(entry, cst.ClassDef):
        return None
    bases = {code_of(base.value) for base in entry.bases}
    if not bases <= {"nn.Module", "torch.nn.Module", "Module", "object"}:
        return None
    if any("forward" in binds(item) or "__call__" in binds(item) for item in entry.body.body):
        return None
    return Unusable(
        kind="no_entry",
        message=f"`{ENTRY}` has no `forward`. Write the whole class: what is left out is not "
        "taken from the reference.",
    )


def says_the_same(answer: cst.Module, original: cst.Module, entry: str) -> bool:
    """Return whether every definition of an answer is in the reference, word by word."""
    named = renamed(answer, ENTRY, entry) if find(answer, entry) is None else answer
    if named is None:
        return False
    known = {dump(item) for item in original.body}
    imports = (cst.Import, cst.ImportFrom, cst.Expr)
    return all(
        dump(item) in known
        for item in named.body
        if not isinstance(item, cst.SimpleStatementLine) or not isinstance(item.body[0], imports)
    )


def with_obvious_imports(answer: cst.Module) -> cst.Module:
    """Return an answer with the imports that it forgot."""
    bound = {name for item in answer.body for name in binds(item)}
    used = {name for item in answer.body for name in uses(item)}
    missing = [obvious(name) for name in OBVIOUS if name in used - bound]
    return with_imports(answer, missing)
