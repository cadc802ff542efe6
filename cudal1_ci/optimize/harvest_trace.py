"""Read what a script of a harvest called."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from cudal1_ci.sandboxed.wire.harvest import ScriptRan

TOO_LARGE = ("out_of_time", "out_of_memory")


def named_smaller(ran: ScriptRan) -> ScriptRan:
    """Return what a script made smaller called, with what was changed in its source."""
    changes = ", ".join(note for note in ran.notes if " -> " in note)
    lines = []
    for line in ran.trace.splitlines():
        call = decoded(line)
        if call is not None:
            if changes and isinstance(call.get("source"), str):
                call["source"] = f"{call['source']} (smaller: {changes})"
            lines.append(msgspec.json.encode(call).decode())
    if not lines:
        return ran
    return dataclasses.replace(ran, trace="\n".join(lines) + "\n")


def decoded(line: str) -> dict[str, Any] | None:
    """Return a line of a trace; None for what is none."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def is_too_large(ran: ScriptRan) -> bool:
    """Return whether a script wants more time or memory than there is."""
    return bool(ran.ending) or any(cell.outcome in TOO_LARGE for cell in ran.cells)


def called_in(trace: str) -> set[str]:
    """Return `path:qualname` of what a trace can call again."""
    found = set()
    for line in trace.splitlines():
        call = decoded(line)
        if call is not None and isinstance(call.get("target"), str) and "call" in call:
            found.add(call["target"])
    return found
