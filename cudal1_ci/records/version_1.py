"""Read what was written before version 2 of the report.

A repetition was called a launch, in reports and in the archive. A report of version 1 had the
arguments of a call as text, and said of each candidate whether its verdict was reused and which of
its claims are contradicted; version 2 says that in the entry, as the record does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MADE = re.compile(r"(?:(?P<path>[^()]+):)?(?P<function>\w+)\(\)")


def renewed(encoded: bytes) -> bytes:
    """Rename launches to repetitions in JSON without spaces, as the archive and `bench` write it.

    A quote inside of a JSON string is escaped, so only a key matches."""
    return encoded.replace(b'"launches":', b'"repetitions":')


def upgrade(report: Any) -> None:
    """Change the decoded JSON of a report into that of version 2.

    What is not of the shape of version 1 is left as it is, for the decoder to refuse."""
    for entry in objects(report, "entries"):
        for workload in objects(entry, "workloads"):
            for name in ("init", "call"):
                if isinstance(workload.get(name), str):
                    workload[name] = call_of(workload[name])
        reused, contradictions = [], []
        for evaluation in objects(entry, "evaluations"):
            for measurement in objects(evaluation, "measurements"):
                measurement["repetitions"] = measurement.pop("launches", [])
            candidate = evaluation.get("candidate")
            if not isinstance(candidate, dict):
                continue
            candidate |= {"problem_id": "", "program": _program(entry.get("target"))}
            candidate_id = candidate.get("id")
            if evaluation.pop("reused", False) is True:
                reused.append(candidate_id)
            contradictions += [
                claim | {"candidate_id": candidate_id}
                for claim in objects(candidate, "contradictions")
            ]
        entry |= {"reused": reused, "contradictions": contradictions}


def call_of(text: str) -> dict[str, Any]:
    """Return a call that reads as `call_text` wrote it. Only what makes its own arguments can be
    called again: of others no more than the words are known."""
    made = MADE.fullmatch(text)
    if made:
        return {"type": "made", **made.groupdict()}
    words = {"type": "symbol", "path": text.removeprefix("(").removesuffix(")")}
    return {"type": "call", "args": [words] if words["path"] else []}


def _program(target: Any) -> dict[str, Any]:
    """Return the program of a candidate whose patch alone was published."""
    qualname = target.get("qualname") if isinstance(target, dict) else ""
    return {"type": "tree", "root": ".", "import_root": ".", "import_path": qualname, "digest": ""}


def objects(plain: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list of an object. What is none is left to the decoder."""
    inner = plain.get(name) if isinstance(plain, dict) else None
    for one in inner if isinstance(inner, list) else ():
        if isinstance(one, dict):
            yield one
