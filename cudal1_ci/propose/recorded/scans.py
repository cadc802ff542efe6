"""Run a loop that carries an elementwise recurrence as one Triton kernel."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.lifted import Refused
from cudal1_ci.propose.recorded.recurrence import scans_in
from cudal1_ci.propose.recorded.recurrence_kernel import Kernel
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule


def find_scans(call: Call) -> Iterator[Change]:
    """Find recurrences whose steps are elementwise, of tensors on a GPU."""
    if not call.has_triton or not call.is_inference:
        return
    names: set[str] = set()
    for scan in scans_in(call):
        base = name = f"{next(iter(scan.states))}_scan"
        count = 1
        while name in names or name in scan.loop.file.text:
            count += 1
            name = f"{base}_{count}"
        try:
            change = Kernel(scan, name).change()
        except Refused:
            continue
        names.add(name)
        yield change


RULES = (
    RecordedRule(
        name="scan_kernel",
        family="loops",
        why="one kernel keeps the state in registers through all steps, where each step launched "
        "several kernels that read and wrote it",
        precondition="steps are elementwise in the state, or sum over one dimension of up to 256; "
        "float32 on a GPU, without gradients; a Triton kernel is added to the file, and the loop "
        "stays for all else",
        find=find_scans,
    ),
)
