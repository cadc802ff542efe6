"""Define the nouns. Read this room first.

A Change has Targets. A Target with Workloads is a Problem. Proposers write Candidates. The verifier
runs a Trial of each and records an Evaluation. Entries of all of it make the Report.

Records are frozen and keyword-only. What a report holds ignores unknown fields, and its sizes and
types are checked where it is read; all else refuses unknown fields. Times are microseconds (`_us`),
sizes bytes, a `speedup` above 1 is faster. Absent is None, never a sentinel number. Raw times are
kept: speedups and intervals are derived when read (`stats/speedups.py`), and a report has them next
to the times (`stats/figures.py`).
"""

from __future__ import annotations

from cudal1_ci.records.acceptance import Acceptance, AcceptanceLine
from cudal1_ci.records.candidate import Candidate, Edit, Generation, Identity
from cudal1_ci.records.change import Change, FileChange
from cudal1_ci.records.comparison import (
    Acknowledgement,
    ComparedWorkload,
    Comparison,
    ComparisonVerdict,
)
from cudal1_ci.records.evaluation import (
    ContractCheck,
    Contradiction,
    Demand,
    Device,
    Evaluation,
    Exemplar,
    Finding,
    Kernel,
    Measurement,
    Phase,
    Repetition,
    Status,
    Verdict,
)
from cudal1_ci.records.impact import (
    Baseline,
    CallCost,
    Impact,
    InRoot,
    LeftOut,
    TimelineEvent,
    Together,
)
from cudal1_ci.records.program import (
    OverlayFile,
    Problem,
    Program,
    TextProgram,
    TreeProgram,
    program_identity,
)
from cudal1_ci.records.record import Record, content_hash
from cudal1_ci.records.report import (
    Entry,
    Explanation,
    Listing,
    ModelUse,
    NearMiss,
    Notice,
    NotTried,
    Operation,
    OpinionUse,
    Report,
    Totals,
    TrainingStep,
    Understanding,
)
from cudal1_ci.records.target import Target, TargetKind
from cudal1_ci.records.workload import (
    ArgumentSpec,
    Call,
    Constant,
    Instance,
    Items,
    Made,
    Mapping,
    Provenance,
    Symbol,
    TensorSpec,
    TracedSteps,
    Workload,
)

__all__ = [
    "Acceptance",
    "AcceptanceLine",
    "Acknowledgement",
    "ArgumentSpec",
    "Baseline",
    "Call",
    "CallCost",
    "Candidate",
    "Change",
    "ComparedWorkload",
    "Comparison",
    "ComparisonVerdict",
    "Constant",
    "ContractCheck",
    "Contradiction",
    "Demand",
    "Device",
    "Edit",
    "Entry",
    "Evaluation",
    "Exemplar",
    "Explanation",
    "FileChange",
    "Finding",
    "Generation",
    "Identity",
    "Impact",
    "InRoot",
    "Instance",
    "Items",
    "Kernel",
    "LeftOut",
    "Listing",
    "Made",
    "Mapping",
    "Measurement",
    "ModelUse",
    "NearMiss",
    "NotTried",
    "Notice",
    "Operation",
    "OpinionUse",
    "OverlayFile",
    "Phase",
    "Problem",
    "Program",
    "Provenance",
    "Record",
    "Repetition",
    "Report",
    "Status",
    "Symbol",
    "Target",
    "TargetKind",
    "TensorSpec",
    "TextProgram",
    "TimelineEvent",
    "Together",
    "Totals",
    "TracedSteps",
    "TrainingStep",
    "TreeProgram",
    "Understanding",
    "Verdict",
    "Workload",
    "content_hash",
    "program_identity",
]
