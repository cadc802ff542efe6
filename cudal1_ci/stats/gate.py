"""Decide what the check concludes: a state for each thing that was to be measured, and a policy for
each state.

The check is a success only where every machine that was expected and every required target was
measured, and none is worse. All else has a state here, and one of three policies answers it:

    fail-on          something is worse: a slowdown, or with `contract` a use that no longer works
    on-missing       something that was to be measured was not
    on-inconclusive  it was measured, and the result is unclear

No event, label or origin of a change is asked: the same states conclude the same everywhere.
`docs/reference/gate.md` is written from this module, and the tests walk its rows.

    judged(document, policy, ("h100",)).conclusion
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal, get_args

from cudal1_ci.records import Comparison, Entry, Record, Report
from cudal1_ci.records.comparison import Cause

Conclusion = Literal["failure", "neutral", "success"]
FailOn = Literal["never", "regression", "contract", "inconclusive"]
Answer = Literal["auto", "neutral", "failure"]
Question = Literal["fine", "fail-on", "contract", "on-missing", "on-inconclusive"]
"""Which policy answers a state; none is asked about what is fine."""
State = Literal[
    "same",
    "faster",
    "new",
    "within",
    "agreed",
    "nothing_to_measure",
    "slower",
    "broken",
    "inconclusive",
    "renamed",
    "moved",
    "lost",
    "skipped",
    "crashed",
    "unmeasured",
    "over_budget",
    "machine_missing",
    "no_report",
    "unverified",
]

STATES: dict[State, tuple[Question, str]] = {
    "same": ("fine", "measured, and no slower"),
    "faster": ("fine", "measured, and faster"),
    "new": ("fine", "not in the base, under this or another name"),
    "within": ("fine", "has no call of its own, and ran in calls that were measured"),
    "agreed": ("fine", "a person with write access has agreed to it"),
    "nothing_to_measure": ("fine", "the change touches no target"),
    "slower": ("fail-on", "measured, and slower"),
    "broken": ("contract", "a use that worked in the base does not work in the head"),
    "inconclusive": ("on-inconclusive", "measured, but too noisy"),
    "renamed": ("on-missing", "has another name in the head, and was not measured under it"),
    "moved": ("on-missing", "is in another file of the head, and was not measured there"),
    "lost": ("on-missing", "is in the base but not in the head"),
    "skipped": ("on-missing", "no call of it could be timed"),
    "crashed": (
        "on-missing",
        "the head failed, or returned another structure, where the base works",
    ),
    "unmeasured": ("on-missing", "was not measured, for a reason other than the code"),
    "over_budget": (
        "on-missing",
        "the budget was spent before it was measured, or before an alarm was confirmed",
    ),
    "machine_missing": ("on-missing", "an expected machine left no report"),
    "no_report": ("on-missing", "nothing was measured: refused, skipped, cancelled or crashed"),
    "unverified": ("on-missing", "an untrusted job measured it"),
}
"""Every state with the policy that answers it, and what it means."""
CAUSES: tuple[Cause, ...] = get_args(Cause)
SEVERITY: tuple[Conclusion, ...] = ("failure", "neutral", "success")
_OF_VERDICT: dict[str, State] = {
    "improvement": "faster",
    "same": "same",
    "new": "new",
    "removed": "lost",
    "skipped": "skipped",
}


class GateConfig(Record, frozen=True, kw_only=True):
    """Hold what must be measured, and what follows where it was not. For a pull request it is read
    from the merge base."""

    on_missing: Answer = "auto"
    """What the check concludes where something was not measured; `auto` is `failure` where
    `fail-on` is not `never`."""
    on_inconclusive: Answer = "auto"
    """What it concludes where the result is unclear; `auto` is `neutral`, and `failure` where
    `fail-on` is `inconclusive`."""
    machines: tuple[str, ...] = ()
    """Each has to leave a report: as the artifacts are called, without `cudal1-ci-`."""
    gpus: tuple[str, ...] = ()
    """Machines that each have to leave a report of a GPU, named as in `machines`. Times of a CPU do
    not count there: a driver that is gone would else go unseen."""
    required: tuple[str, ...] = ("*",)
    """Globs over `path:qualname`: of targets that a change touches, those that have to be
    measured."""


class Policy(Record, frozen=True, kw_only=True):
    """Hold the answers to all states."""

    fail_on: str = "never"
    gate: GateConfig = GateConfig()

    def conclusion_of(self, state: State) -> Conclusion:
        """Return what a check concludes that has this state and no worse one."""
        question, _ = STATES[state]
        if question == "fine":
            return "success"
        if question == "fail-on":
            return "neutral" if self.fail_on in ("never", "proposal") else "failure"
        if question == "contract":
            return "failure" if self.fail_on == "contract" else "neutral"
        return self.on_missing if question == "on-missing" else self.on_inconclusive

    @property
    def on_missing(self) -> Conclusion:
        if self.gate.on_missing != "auto":
            return self.gate.on_missing
        return "neutral" if self.fail_on in ("never", "proposal") else "failure"

    @property
    def on_inconclusive(self) -> Conclusion:
        if self.gate.on_inconclusive != "auto":
            return self.gate.on_inconclusive
        return "failure" if self.fail_on == "inconclusive" else "neutral"

    def requires(self, entry: Entry) -> bool:
        """Return whether a target has to be measured where a change touches it."""
        name = entry.target.address
        return any(fnmatchcase(name, glob) for glob in self.gate.required)


class Finding(Record, frozen=True, kw_only=True):
    """Hold one state, and the target or machine that has it."""

    state: State
    name: str = ""
    detail: str = ""


class Judgement(Record, frozen=True, kw_only=True):
    """Hold what the check concludes, and every state that is not fine."""

    conclusion: Conclusion
    findings: tuple[Finding, ...] = ()

    def of(self, question: Question) -> tuple[Finding, ...]:
        """Return what a policy has answered."""
        return tuple(one for one in self.findings if STATES[one.state][0] == question)

    @property
    def missing(self) -> tuple[Finding, ...]:
        """Return what was to be measured and was not."""
        return self.of("on-missing")


def judged(document: Report | None, policy: Policy, missing: Iterable[Finding] = ()) -> Judgement:
    """Return what a check concludes of a report.

    Args:
        document: None where there is none.
        missing: What is known besides: machines without a report, or why there is none.
    """
    found = [*missing, *(states_of(document, policy) if document is not None else ())]
    if document is None and not found:
        found = [Finding(state="no_report")]
    conclusions = [policy.conclusion_of(one.state) for one in found]
    return Judgement(
        conclusion=min(conclusions, key=SEVERITY.index, default="success"),
        findings=tuple(one for one in found if STATES[one.state][0] != "fine"),
    )


def states_of(document: Report, policy: Policy) -> Iterator[Finding]:
    """Yield the states of a report's targets, and of a run that was cut off. Where targets were
    compared, each says itself whether the budget was spent before it.
    """
    compared = [entry for entry in document.entries if entry.comparison is not None]
    if document.ended == "interrupted":
        yield Finding(state="unmeasured", detail="the run was interrupted")
    elif not compared and document.ended != "done":
        yield Finding(state="over_budget")
    elif not compared:
        # Proposals alone: base and head were not compared.
        detail = "base and head were not compared" if document.entries else ""
        yield Finding(state="unmeasured" if detail else "nothing_to_measure", detail=detail)
    for entry in compared:
        assert entry.comparison is not None
        for state in states_of_comparison(entry.comparison):
            if STATES[state][0] == "on-missing" and not policy.requires(entry):
                continue
            yield Finding(
                state=state, name=entry.target.qualname, detail=entry.comparison.reason or ""
            )


def states_of_comparison(comparison: Comparison) -> Iterator[State]:
    """Yield the states of one target: what was measured, and what of it was not, on any machine."""
    verdict, cause = comparison.verdict, comparison.cause
    if verdict == "regression":
        yield "agreed" if is_acknowledged(comparison) else "slower"
    elif verdict in ("improvement", "same") or cause is None:
        yield _state_of(comparison)
    if cause is not None:
        state = state_of(cause)
        is_excused = comparison.acknowledged is not None and verdict != "regression"
        yield "agreed" if is_excused and STATES[state][0] == "on-missing" else state
    if comparison.broken:
        yield "broken"


def state_of(cause: Cause) -> State:
    """Return the state of a target that lacks times. One on a busy machine was measured."""
    return "inconclusive" if cause == "noisy" else cause


def _state_of(comparison: Comparison) -> State:
    if comparison.verdict == "inconclusive":
        return "inconclusive" if comparison.rows else "unmeasured"
    if comparison.verdict == "skipped" and comparison.within:
        return "within"
    state = _OF_VERDICT[comparison.verdict]
    is_excused = STATES[state][0] == "on-missing" and comparison.acknowledged is not None
    return "agreed" if is_excused else state


def is_acknowledged(comparison: Comparison) -> bool:
    """Return whether a comparison is a regression, and no worse than what was accepted."""
    agreed = comparison.acknowledged
    if comparison.verdict != "regression" or agreed is None:
        return False
    return comparison.slowdown is not None and comparison.slowdown <= agreed.max_slowdown


def is_missing(comparison: Comparison) -> bool:
    """Return whether something of a target was not measured, and no one has agreed to that."""
    return any(STATES[state][0] == "on-missing" for state in states_of_comparison(comparison))


def machine_of(artifact: str, machines: Iterable[str]) -> str | None:
    """Return the machine of an artifact: the one with the longest name at its end.

    `cudal1-ci-big-h100` is of `big-h100` where that is expected, and else of `h100`.
    """
    named = [one for one in machines if artifact == one or artifact.endswith(f"-{one}")]
    return max(named, key=len, default=None)


def missing_machines(
    expected: Iterable[str], found: Iterable[str], why: str = ""
) -> tuple[Finding, ...]:
    """Return the machines that have left no report; `found` are names of artifacts."""
    expected = tuple(dict.fromkeys(expected))
    seen = {machine_of(name, expected) for name in found}
    return tuple(
        Finding(state="machine_missing", name=machine, detail=why)
        for machine in expected
        if machine not in seen
    )
