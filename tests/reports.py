"""Reports as `publish` reads them: documents made by hand, with one thing to say each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cudal1_ci.records import (
    Acknowledgement,
    Candidate,
    ComparedWorkload,
    Comparison,
    Device,
    Entry,
    Evaluation,
    Measurement,
    Report,
    Target,
    TextProgram,
    Verdict,
)
from cudal1_ci.records.comparison import Cause
from cudal1_ci.records.published import to_json
from cudal1_ci.render.published import totals
from tests.report_schema import validated

HEAD = "1" * 40
BASE = "b" * 40
GPU = Device(kind="cuda", name="NVIDIA H200")
MODEL = [
    "import torch",
    "",
    "",
    "def pool(x, weight):",
    "    scale = torch.diag(weight)",
    "    return scale @ x",
    "",
    "",
    "def other(x):",
    "    return x",
]
"""`pkg/model.py` as it is in the head."""
DIFF = "@@ -2,4 +2,5 @@\n \n \n def pool(x, weight):\n-    return x\n+" + (
    "    scale = torch.diag(weight)\n+    return scale @ x"
)
"""What the pull request did to it: a hunk whose right side is lines 2 to 6."""
PATCH = "\n".join(
    [
        "--- a/pkg/model.py",
        "+++ b/pkg/model.py",
        "@@ -2,8 +2,7 @@",
        " ",
        " ",
        " def pool(x, weight):",
        "-    scale = torch.diag(weight)",
        "-    return scale @ x",
        "+    return weight.unsqueeze(1) * x",
        " ",
        " ",
        " def other(x):",
        "",
    ]
)
"""A proposal for lines 5 and 6."""
ELSEWHERE = """\
--- a/pkg/model.py
+++ b/pkg/model.py
@@ -9,2 +9,2 @@
 def other(x):
-    return x
+    return +x
"""


def a_target(qualname: str = "pool", path: str = "pkg/model.py", line: int = 4) -> Target:
    return Target(
        path=path, qualname=qualname, kind="torch_function", first_line=line, last_line=line + 2
    )


def a_row(verdict: str, base_us: float, head_us: float, **fields: Any) -> ComparedWorkload:
    """One workload of a comparison, measured on one GPU."""
    known: dict[str, Any] = {
        "workload": "base",
        "verdict": verdict,
        "device": GPU,
        "slowdown": head_us / base_us,
        "base_us": base_us,
        "head_us": head_us,
        "control_spread": 0.01,
        "num_measurements": 2,
    }
    return ComparedWorkload(**(known | fields))


def compared(
    verdict: str, slowdown: float = 1.5, target: Target | None = None, **fields: Any
) -> Entry:
    """A target that was measured on both trees."""
    low, high = slowdown * 0.98, slowdown * 1.02
    row = a_row(verdict, 100.0, 100.0 * slowdown, slowdown_low=low, slowdown_high=high)
    comparison = Comparison(
        verdict=verdict,  # type: ignore[arg-type]
        slowdown=slowdown,
        slowdown_low=low,
        slowdown_high=high,
        rows=(row,),
        **fields,
    )
    return Entry(target=target or a_target(), evaluations=(), comparison=comparison)


def agreed(max_slowdown: float) -> Acknowledgement:
    return Acknowledgement(
        target="pkg/*", max_slowdown=max_slowdown, reason="safer", owner="me", expires="2099-01-01"
    )


def a_proof(
    reference_us: float,
    speedup: float,
    device: Device = GPU,
    half_width: float = 0.1,
    **candidate: Any,
) -> Evaluation:
    """An evaluation that passed."""
    measurement = Measurement(
        workload="base",
        baseline="eager",
        speedup=speedup,
        speedup_low=round(speedup - half_width, 6),
        speedup_high=round(speedup + half_width, 6),
        control_spread=0.01,
        reference_us=reference_us,
        candidate_us=reference_us / speedup,
        num_pairs=40,
        device=device,
    )
    known: dict[str, Any] = {
        "problem_id": "p1",
        "known_id": candidate.pop("id", "c1"),
        "program": TextProgram(source="", entry="Model"),
        "proposer": "playbook:diagonal",
    }
    return Evaluation(
        verdict=Verdict(status="passed"),
        candidate=Candidate(**(known | candidate)),
        measurements=(measurement,),
        device=device,
    )


def lacking(cause: Cause | None, target: Target | None = None, **fields: Any) -> Entry:
    """A target that was not measured, for a cause."""
    verdicts: dict[Any, str] = {"renamed": "removed", "moved": "removed", "lost": "removed"}
    verdicts |= dict.fromkeys(("crashed", "noisy", "unmeasured"), "inconclusive")
    comparison = Comparison(
        verdict=verdicts.get(cause, "skipped"),  # type: ignore[arg-type]
        reason=fields.pop("reason", "it was not"),
        cause=cause,
        **fields,
    )
    return Entry(target=target or a_target(), skipped="it was not", comparison=comparison)


def proposed(patch: str | None = PATCH, target: Target | None = None, **fields: Any) -> Entry:
    """A target of which a faster version was proven."""
    evaluation = a_proof(300.0, 3.1, patch=patch, **fields)
    return Entry(target=target or a_target(), evaluations=(evaluation,), best=0)


def a_report(*entries: Entry, **fields: Any) -> Report:
    known: dict[str, Any] = {
        "repository": "o/r",
        "base_sha": BASE,
        "head_sha": HEAD,
        "device": GPU,
        "devices": (GPU,),
        "entries": entries,
        "totals": totals(entries),
    }
    return Report(**(known | fields))


def written(path: Path, report: Report) -> Path:
    path.write_bytes(validated(to_json(report)))
    return path
