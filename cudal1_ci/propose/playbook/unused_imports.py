"""Names that a file imports from modules and uses no more, as a rewrite took their last use away:
`from torch import einsum`. Modules that are imported whole stay, as others may find them there.

A name counts as used wherever its word stands outside of the imports at the top of the file, in a
comment or a string too (`__all__`, an annotation). What was unused before is left to its author,
and so is a name that a package's `__init__.py` may import for others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

import libcst as cst

from cudal1_ci.propose.playbook.terms import code

_WORD = re.compile(r"\w+")
Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


def without_unused(before: cst.Module, after: cst.Module) -> cst.Module:
    """The file after a rewrite without the imports that it made unused."""
    unused = (words_beside_imports(before) - words_beside_imports(after)) & imported_names(after)
    if not unused:
        return after
    body: list[Line] = []
    above: list[cst.EmptyLine] = []
    for line in after.body:
        kept = without_names(line, unused)
        if kept is None:
            assert isinstance(line, cst.SimpleStatementLine)
            above += line.leading_lines
            continue
        if above and isinstance(kept, cst.SimpleStatementLine):
            is_apart = bool(kept.leading_lines)
            remarks = [one for one in above if one.comment is not None or not is_apart]
            kept = kept.with_changes(leading_lines=[*remarks, *kept.leading_lines])
        above = []
        body.append(kept)
    return after.with_changes(body=body)


def words_beside_imports(module: cst.Module) -> set[str]:
    """All words of a file but those of imports at its top."""
    others = module.with_changes(body=[line for line in module.body if imported(line) is None])
    return set(_WORD.findall(others.code))


def imported(line: cst.CSTNode) -> cst.Import | cst.ImportFrom | None:
    """The import that is all of a line."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    statement = line.body[0]
    return statement if isinstance(statement, cst.Import | cst.ImportFrom) else None


def names_from(line: cst.CSTNode) -> Sequence[cst.ImportAlias]:
    """What a line imports from a module, by name; nothing of the future, which is no name."""
    statement = imported(line)
    if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return ()
    is_future = statement.module is not None and code(statement.module) == "__future__"
    return () if is_future else statement.names


def imported_names(module: cst.Module) -> set[str]:
    """The names that the imports at the top of a file take from modules."""
    return {bound(alias) for line in module.body for alias in names_from(line)}


def bound(alias: cst.ImportAlias) -> str:
    """`fold` of `rearrange as fold`."""
    return code(alias.asname.name if alias.asname else alias.name)


def without_names(line: Line, names: Set[str]) -> Line | None:
    """A line that imports none of these names; None where nothing is left of it."""
    aliases = names_from(line)
    kept = [alias for alias in aliases if bound(alias) not in names]
    if len(kept) == len(aliases):
        return line
    if not kept:
        return None
    if kept[-1] is not aliases[-1]:
        kept[-1] = kept[-1].with_changes(comma=aliases[-1].comma)
    statement = imported(line)
    assert isinstance(line, cst.SimpleStatementLine)
    assert isinstance(statement, cst.ImportFrom)
    return line.with_changes(body=[statement.with_changes(names=kept)])
