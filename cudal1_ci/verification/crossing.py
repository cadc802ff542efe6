"""Turn records into what crosses the process wall, and what comes back into records.

A class of `sandboxed.wire` has the fields of the record that it represents, or some of them, under
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
"""The wire class of each record class."""
T = TypeVar("T")


def program_on_wire(program: records.Program) -> programs.Program:
    """Return a program as workers receive it."""
    found: programs.Program = on_wire(program)
    return found


def problem_on_wire(problem: records.Problem) -> programs.Problem:
    """Return a problem as a verifier receives it."""
    found: programs.Problem = on_wire(problem)
    return found


def workload_on_wire(workload: records.Workload) -> programs.Workload:
    """Return a workload as a verifier receives it."""
    found: programs.Workload = on_wire(workload)
    return found


def on_wire(value: Any) -> Any:
    """Convert a record, or a field of one, to its form on the wire."""
    form = FORMS.get(type(value))
    if form is not None:
        return form(**{one.name: on_wire(getattr(value, one.name)) for one in fields(form)})
    if isinstance(value, tuple):
        return tuple(map(on_wire, value))
    if isinstance(value, dict):
        return {name: on_wire(one) for name, one in value.items()}
    return value


def verdict_of(verdict: verdicts.Verdict) -> records.Verdict:
    """Return the verdict of a verifier or a compiler as a record."""
    return record(verdict, records.Verdict)


def record(value: Any, form: type[T]) -> T:
    """Return the record of a class, made from the fields of the same names."""
    return msgspec.convert(value, form, from_attributes=True)
