"""Say why nothing was tried on a target, or nothing more."""

from __future__ import annotations

import re
import traceback

from cudal1_ci.discover.plan import Planned
from cudal1_ci.records import Entry, Problem
from cudal1_ci.records.report import TargetClass

INTERRUPTED = "the run was interrupted"
SPENT = "not reached: the budget was spent"
DEVICE_IN_USE = "not reached: another process measured on the device until the budget was spent"
FELL = "{reason}; what was verified before is kept, the rest was not tried"
NOTHING_PROPOSED = "nothing to try: no rewrite matches"
NO_KERNEL_PROPOSED = (
    "nothing to try: for a kernel the numbers of its launches are changed, and none are found here"
)
NEGLIGIBLE = (
    "left out: by itself it takes {share:.2g} % of the traced time, less than {least:.2g} % "
    "(`review.min-share`)"
)
NEGLIGIBLE_HINT = "to look at it all the same, set review.min-share = 0"
AT_THE_FLOOR: TargetClass = "at the floor"
FLOOR = AT_THE_FLOOR + ": {total} of {bound}"
"""Measured, and the least that any form of the call can take."""
NOT_RECORDED = "no call was recorded: {reason}"
COVERED = "the same is proposed as `{proposer}`"
OVER_THE_LIMIT = "more than {most} candidates in a round (`review.num-candidates`)"
AT_THE_BOUND = "what was found takes about the least time that any form of the call can take"
NO_ROUND = "no round was left for it"
KERNEL_HINT = "give a model, which writes kernels: --model"


def untried(planned: Planned, reason: str) -> Entry:
    """Return the entry of a target that was not verified: its own reason, or that of the run."""
    if planned.problem is None:
        reason = planned.reason or reason
    return Entry(
        target=planned.target, skipped=reason, hint=planned.hint, workloads=planned.workloads
    )


def negligible(problem: Problem, min_share: float) -> str:
    """Return why what takes so little time is left out."""
    assert problem.share is not None
    return NEGLIGIBLE.format(share=100 * problem.share, least=100 * min_share)


def hint_of_import(reason: str) -> str | None:
    """Return what helps where a package is missing."""
    found = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", reason)
    return found and (
        f"install what `{found[1]}` belongs to for the Python that runs your code "
        "(`cudal1-ci doctor` names it; `--python` chooses another)"
    )


def bug(error: Exception) -> str:
    """Return what to say of an error that nothing foresaw."""
    tail = "".join(traceback.format_exception(error)[-3:])
    return f"this is a bug of cudal1-ci, please report it:\n{tail}"
