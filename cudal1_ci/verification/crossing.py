"""Turn records into what crosses the process wall, and what comes back into records.

A class of `sandboxed.wire` has the fields of the record that it stands for, or some of them, under
the same names.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from cudal1_ci import records
from cudal1_ci.sandboxed.wire import arguments, programs, verdicts

FORMS: dict[type, Any] = {
    records.TextProgram: programs.TextProgram,
    records.TreeProgram: programs.TreeProgram,
    records.OverlayFile: programs.OverlayFile,
    records.Workload: programs.Workload,
    records.Problem: programs.Problem,
    records.Call: arguments.Call,
    records.Made: arguments.Made,
    records.TensorSpec: arguments.TensorSpec,
    records.Constant: arguments.Constant,
    records.Symbol: arguments.Symbol,
    records.Items: arguments.Items,
    records.Mapping: arguments.Mapping,
    records.Instance: arguments.Instance,
}
"""What stands for a record on the wire."""
T = TypeVar("T")


def program_on_wire(program: records.Program) -> programs.Program:
    """A program as workers are given it."""
    found: programs.Program = on_wire(program)
    return found


def problem_on_wire(problem: records.Problem) -> programs.Problem:
    """A problem as a verifier is given it."""
    found: programs.Problem = on_wire(problem)
    return found


def on_wire(value: Any) -> Any:
    """What stands for a record, or for a field of one."""
    form = FORMS.get(type(value))
    if form is not None:
        return form(**{one.name: on_wire(getattr(value, one.name)) for one in fields(form)})
    if isinstance(value, tuple):
        return tuple(map(on_wire, value))
    if isinstance(value, dict):
        return {name: on_wire(one) for name, one in value.items()}
    return value


def verdict_of(verdict: verdicts.Verdict) -> records.Verdict:
    """A verifier's or a compiler's words as a record."""
    return record(verdict, records.Verdict)


def record(value: Any, form: type[T]) -> T:
    """The record of that form that has the same fields."""
    return msgspec.convert(value, form, from_attributes=True)
