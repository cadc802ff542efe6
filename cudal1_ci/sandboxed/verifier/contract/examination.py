"""Try the lines of a contract: on the reference once, then on each candidate."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from ...forkserver.client import Template
from ...forkserver.handles import RunnerFailure, RunnerHandle
from ...memory.segment import place
from ...wire.programs import Program
from ...wire.runner import Collect, ListImported, StateIn, Survey, Surveyed, Try
from ...wire.tensors import bare
from ...wire.verdicts import ContractCheck, Finding
from ..cases import Case, Limits, Rejected
from ..inputs import InputSet, Room, each_same_bits
from ..near_inputs import shaken
from ..spread import MANY_CALLS
from ..ties import NUM_CALLS
from .judgement import UNSETTLED, Result, contradiction, different_facts, filled
from .lines import FLOATS, Line, Use, derive

USE_S, MULTIPLE = 20.0, 20.0
"""Most seconds of one use, or what the user's limit of calls is where that is less. A candidate
has a few seconds more than this multiple of the reference's own time."""
LEAST_S = 5.0
SLOW_S = 4.0
"""A use for which the reference took longer may be late because the machine is busy."""
MEMORY_SHARE = 16
"""Divisor of the device's memory, for the results of the reference."""
MOST_FAILURES = 4
"""Processes of one program that may die or hang before the other lines are not tried."""
REASON_CHARS = 240
OUT_OF_TIME = "out of time"
USUAL = Use(recipe="call", is_new=True)
FAILS = "it fails"
OFF = re.compile(r" is off by ")
INDEPENDENT = "there the reference gives these numbers for all finite numbers"
OWN_CHECK = re.compile(r"\s*(raise|assert)\b")
NOT_OWN = ("site-packages", "/sandboxed/runner/")
"""Parts of the paths of files that are not the program's."""
CALLS = ("call", "checked")
"""Recipes that only make a call."""
GROUPS_OF_VALUES = ("values", "ranges", "masks")
"""Groups of lines that change values alone: what checks of values refuse."""
INPUT = re.compile(r"\binput (\d+)\b")


@dataclass
class Learned:
    """What the reference does on a line."""

    uses: list[tuple[Use, Result]] = field(default_factory=list)
    checks: list[tuple[Use, str]] = field(default_factory=list)
    """Uses whose values the reference's own code refuses, with its words."""
    refusal: str = ""
    reason: str = ""


@dataclass
class ContractKnowledge:
    """What is known of a reference's contract, kept with its case."""

    names: tuple[str, ...] = ()
    """Names of the tensors of a call."""
    lines: list[Line] = field(default_factory=list)
    learned: dict[int, Learned] = field(default_factory=dict)
    """By number of the line; lines that are missing were out of time."""
    num_bytes: int = 0
    usual: Result | None = None
    """What a call under the workload comes to."""

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors that are held."""
        return [
            tensor
            for one in self.learned.values()
            for _, result in one.uses
            for tensor in result.tensors
        ]


class Party:
    """A program in a runner of its own, which is started again where it dies."""

    def __init__(self, case: Case, template: Template, program: Program, limits: Limits):
        self.case, self.template, self.program = case, template, program
        self.limits = Limits(limits.load_s, min(limits.call_s, USE_S))
        self.stack = ExitStack()
        self.runner: RunnerHandle | None = None
        self.num_failures = 0

    def __enter__(self) -> Party:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stack.close()
        self.runner = None

    def open(self) -> RunnerHandle:
        """Return the runner. Raises RunnerFailure, or Rejected where the state differs."""
        if self.runner is None:
            opened = self.case.runner(self.template, self.program, self.limits)
            self.runner = self.stack.enter_context(opened)
            if self.case.cast is not None and self.case.state_slots:
                self.case.load_state(self.runner, self.case.timed_state(), self.limits)
        return self.runner

    def survey(self) -> Surveyed:
        """Return how the program may be used. Raises RunnerFailure."""
        runner = self.open()
        sets = [self.case.usual_inputs()]
        room = self.write(runner, sets)
        request = Survey(sets=room.describe(), call=self.case.call)
        return runner.ask(request, self.limits.call_s)

    def write(self, runner: RunnerHandle, sets: list[InputSet]) -> Room:
        """Give the runner sets of inputs."""
        case = self.case
        room = Room(sets, [False] * len(sets[0].tensors))
        segment = runner.share("inputs", case.accelerator, room.num_bytes, self.limits.call_s)
        room.write(segment, sets)
        case.accelerator.synchronize()
        return room

    def result(
        self,
        use: Use,
        *,
        seed: int = 1,
        is_wide: bool = False,
        most_s: float = USE_S,
        rounding: int | None = None,
        num_units: int = 1,
    ) -> Result:
        """Return what a use comes to. Raises RunnerFailure."""
        started_s = self.template.awake_s()
        most_s = min(most_s, self.limits.call_s)
        try:
            result = self.attempt(use, seed, is_wide, most_s, rounding, num_units)
            return replace(result, took_s=self.template.awake_s() - started_s)
        except RunnerFailure as failure:
            if failure.kind != "raised" or (self.runner is not None and self.runner.ended):
                self.num_failures += 1
                self.close()
            raise

    def attempt(
        self,
        use: Use,
        seed: int,
        is_wide: bool,
        most_s: float,
        rounding: int | None,
        num_units: int,
    ) -> Result:
        case, limits = self.case, self.limits
        runner = self.open()
        try:
            sets = use.sets() if use.sets is not None else [case.usual_inputs()]
        except (RuntimeError, TypeError, ValueError) as error:
            raise runner.failure("raised", f"such inputs cannot be made: {error}") from error
        room = self.write(runner, sets)
        is_new = use.is_new or is_wide
        if not is_new and any(not slot.is_parameter for slot in case.state_slots):
            runner.ask(StateIn(slots=tuple(case.state_slots)), limits.call_s)
        request = Try(
            recipe=use.recipe,
            target=use.target,
            value=use.value,
            sets=room.describe(),
            call=case.call,
            state=tuple(case.state_slots),
            seed=case.seed + seed,
            is_new=is_new,
            is_wide=is_wide,
            rounding=rounding,
            num_units=num_units,
        )
        reply = runner.ask(request, most_s)
        slots, end = place(reply.slots)
        if end > case.accelerator.memory_bytes() // MEMORY_SHARE:
            raise runner.failure("raised", f"it returns tensors of {end:,} bytes")
        outputs = runner.share("outputs", case.accelerator, end, limits.call_s)
        runner.ask(Collect(slots=(tuple(map(bare, slots)),), segment="outputs"), limits.call_s)
        return Result(
            facts=reply.facts,
            names=reply.names,
            slots=reply.slots,
            tensors=[outputs.tensor(slot).clone() for slot in slots],
            used_rng=reply.used_rng,
            growth=reply.growth,
        )


def examine_contract(
    case: Case, template: Template, program: Program, limits: Limits, budget_s: float
) -> tuple[list[ContractCheck], list[Finding]]:
    """Return the lines of the contract and findings on inputs that never change. The reference
    has the budget's seconds to learn what is not known of it yet, the candidate as many."""
    if case.contract is None:
        case.contract = ContractKnowledge()
    known: ContractKnowledge = case.contract
    with Party(case, template, case.program, limits) as reference:
        why = learn(known, reference, budget_s)
        if why is not None:
            check = ContractCheck(
                group="all", aspect="contract", result="not_tried", detail=why[:REASON_CHARS]
            )
            return [check], []
        with Party(case, template, program, limits) as candidate:
            with suppress(RunnerFailure):  # which compare_lines meets, and counts
                try:
                    candidate.open()
                except Rejected as rejected:
                    return another_state(str(rejected)), []
            checks = compare_lines(known, reference, candidate, budget_s)
    return checks, constant_inputs(checks)


def another_state(said: str) -> list[ContractCheck]:
    """Return the lines of a candidate that was verified under weights of its own, as the
    reference's are not loaded into it. Most other lines would only say that again."""
    return [
        ContractCheck(
            group="weights", aspect="state_dict", result="broken", detail=said[:REASON_CHARS]
        ),
        ContractCheck(
            group="all", aspect="contract", result="not_tried", detail="it has another state_dict"
        ),
    ]


def learn(known: ContractKnowledge, reference: Party, budget_s: float) -> str | None:
    """Learn what the reference honors, while there is time. Return why nothing can be
    learned."""
    started_s = reference.template.awake_s()
    if not known.lines:
        try:
            surveyed = reference.survey()
            known.names, known.lines = surveyed.tensors, derive(reference.case, surveyed)
        except (RunnerFailure, Rejected) as failure:
            return f"the reference could not be looked at: {failure}"
    most_bytes = reference.case.accelerator.memory_bytes() // MEMORY_SHARE
    for number, line in enumerate(known.lines):
        if number in known.learned:
            continue
        if reference.template.awake_s() - started_s > budget_s:
            return None
        if known.num_bytes > most_bytes:
            known.learned[number] = Learned(reason="its results take too much memory")
            continue
        one = known.learned[number] = learn_line(line, reference)
        if line.group == "training" and reference.runner is not None:
            warm(reference)
        known.num_bytes += sum(result.num_bytes for _, result in one.uses)
    return None


def warm(reference: Party) -> None:
    """Import ahead, for later runners, what a first backward pass imports."""
    runner = reference.open()
    names = runner.ask(ListImported(), reference.limits.call_s).names
    reference.template.warm(names)


def learn_line(line: Line, reference: Party) -> Learned:
    """Return what the reference does on a line: the first uses that it accepts."""
    found = Learned(reason=line.reason)
    for use in line.uses:
        if len(found.uses) >= line.num_wanted:
            break
        if reference.num_failures > MOST_FAILURES:
            found.reason = "the reference died or hung on too many others"
            break
        try:
            result = reference.result(use)
            if result.used_rng:
                result = replace(result, varies=varying(result, reference.result(use, seed=2)))
        except RunnerFailure as failure:
            found.refusal = failure.message
            if use.recipe in CALLS and line.group in GROUPS_OF_VALUES and is_own_check(failure):
                found.checks.append((use, first_line(failure.message)))
            continue
        except Rejected as rejected:
            found.refusal = str(rejected)
            continue
        found.uses.append((use, result))
    return found


def is_own_check(failure: RunnerFailure) -> bool:
    """Return whether a program raised an error by a statement of its own (`raise`, `assert`), and
    not in a function of torch."""
    if failure.kind != "raised" or failure.error is None:
        return False
    frames = failure.error.traceback.rpartition('  File "')[2].splitlines()
    if len(frames) < 2 or any(one in frames[0] for one in NOT_OWN):
        return False
    return OWN_CHECK.match(frames[1]) is not None


def varying(one: Result, other: Result) -> frozenset[int]:
    """Return the tensors that differ under another seed."""
    pairs = list(zip(one.tensors, other.tensors, strict=False))
    if len(one.tensors) != len(other.tensors) or any(a.shape != b.shape for a, b in pairs):
        return frozenset(range(len(one.tensors)))
    same = each_same_bits(pairs)
    return frozenset(number for number, is_same in enumerate(same) if not is_same)


def compare_lines(
    known: ContractKnowledge, reference: Party, candidate: Party, budget_s: float
) -> list[ContractCheck]:
    """Return the lines, each held, broken, not applicable or not tried."""
    started_s = candidate.template.awake_s()
    doubt = differs_already(known, candidate, reference)
    checks = []
    for number, line in enumerate(known.lines):
        learned = known.learned.get(number)
        is_late = candidate.template.awake_s() - started_s > budget_s
        if line.is_of_checks and learned is not None and not learned.checks:
            continue
        is_untried = learned is not None and not learned.uses and not learned.checks
        if learned is not None and is_untried and (learned.refusal or learned.reason):
            checks.append(untried(line, learned))
        elif learned is None or is_late:
            checks.append(check_of(line, "not_tried", OUT_OF_TIME))
        elif candidate.num_failures > MOST_FAILURES:
            checks.append(check_of(line, "not_tried", "it died or hung on too many others"))
        else:
            checks.append(compare_line(known, number, reference, candidate, doubt))
    return checks


def differs_already(known: ContractKnowledge, candidate: Party, reference: Party) -> str:
    """Return why differences of values prove nothing: they are there on the workload's own inputs
    too, where the candidate is right by what else the verifier knows (signs, ties)."""
    try:
        if known.usual is None:
            known.usual = reference.result(USUAL)
        theirs = candidate.result(USUAL)
    except (RunnerFailure, Rejected):
        return ""
    said = contradiction(
        candidate.case,
        USUAL.recipe,
        known.usual,
        theirs,
        lambda: exact(reference, USUAL),
        partial(rounded, reference, USUAL),
        lambda: near(reference, USUAL),
    )
    if said is None or not OFF.search(said):
        return ""
    return "so it is on the inputs of the workload, where it is right in another way"


def untried(line: Line, learned: Learned) -> ContractCheck:
    """Return the line that the reference refuses, or that cannot be tried."""
    if learned.refusal:
        said = f"the reference refuses it: {first_line(learned.refusal)}"
        return check_of(line, "not_applicable", said)
    return check_of(line, "not_tried", learned.reason)


def compare_line(
    known: ContractKnowledge, number: int, reference: Party, candidate: Party, doubt: str
) -> ContractCheck:
    """Return what becomes of a line that the reference honors."""
    line, learned = known.lines[number], known.learned[number]
    for use, refusal in learned.checks:
        if accepts(candidate, use):
            detail = f"{use.label}: the reference refuses it ({refusal}), and this returns a result"
            return check_of(line, "differs", detail)
    if learned.checks and not learned.uses:
        return check_of(
            line, "held", f"refused: {', '.join(use.label for use, _ in learned.checks)}"
        )
    differences = []
    for use, ours in learned.uses:
        try:
            theirs = candidate.result(use, most_s=LEAST_S + MULTIPLE * ours.took_s)
            said = contradiction(
                candidate.case,
                use.recipe,
                ours,
                theirs,
                lambda use=use: exact(reference, use),  # type: ignore[misc]
                partial(rounded, reference, use),
                lambda use=use: near(reference, use),  # type: ignore[misc]
                has_odd=bool(use.finite),
            )
            if said is not None and is_product_with_zero(use, ours, theirs, reference, candidate):
                differences.append(f"{use.label}: {said}; {INDEPENDENT}")
                continue
        except (RunnerFailure, Rejected) as failure:
            is_late = isinstance(failure, RunnerFailure) and failure.kind == "timeout"
            if is_late and ours.took_s > SLOW_S:
                return check_of(line, "not_tried", f"{first_line(str(failure))}; {OUT_OF_TIME}")
            said = f"{FAILS}: {first_line(str(failure))}"
        if said is not None:
            said = INPUT.sub(lambda found: named(known, int(found[1])), said)
            label = f"{use.label}: " if use.label else ""
            if line.why_stated:
                return check_of(line, "differs", f"{label}{said}; {line.why_stated}")
            why_not = line.needs_evidence or (doubt if OFF.search(said) else "")
            if said.endswith(UNSETTLED):
                return check_of(line, "not_tried", f"{label}{said}")
            if said.startswith(FAILS):
                why_not = why_not or line.failure_needs_evidence
            if why_not:
                return check_of(line, "not_tried", f"{label}{said}; {why_not}")
            return check_of(line, "broken", f"{label}{said}")
    if differences:
        return check_of(line, "differs", differences[0])
    labels = ", ".join(use.label for use, _ in learned.uses if use.label)
    return check_of(line, "held", labels)


def accepts(candidate: Party, use: Use) -> bool:
    """Return whether a candidate returns a result for a use."""
    try:
        candidate.result(use)
    except (RunnerFailure, Rejected):
        return False
    return True


def is_product_with_zero(
    use: Use, ours: Result, theirs: Result, reference: Party, candidate: Party
) -> bool:
    """Return whether the candidate is right but where the reference multiplies NaN or an infinity
    by zero: there its numbers are those that the reference gives for any finite numbers."""
    if not use.finite or different_facts(ours, theirs) is not None:
        return False
    uses = [replace(use, sets=sets) for sets in use.finite]
    try:
        wanted = filled(ours, theirs, [reference.result(one) for one in uses])
    except (RunnerFailure, Rejected):
        return False
    if wanted is None:
        return False

    def truth() -> Result | None:
        odd, other = exact(reference, use), exact(reference, uses[0])
        return filled(odd, theirs, [other]) if odd is not None and other is not None else None

    said = contradiction(
        candidate.case, use.recipe, wanted, theirs, truth, lambda _: (), tuple, has_odd=True
    )
    return said is None


def named(known: ContractKnowledge, number: int) -> str:
    """Return the name of an input."""
    return known.names[number] if number < len(known.names) else f"input {number}"


def exact(reference: Party, use: Use) -> Result | None:
    """Return what the use of the reference comes to in float64; None where it has no such."""
    try:
        return reference.result(use, is_wide=True)
    except (RunnerFailure, Rejected):
        return None


def rounded(reference: Party, use: Use, num_units: int) -> list[Result]:
    """Return what the use of the reference comes to under random rounding by some units; [] where
    it fails."""
    seed = reference.case.seed
    try:
        return [
            reference.result(use, rounding=seed + number, num_units=num_units)
            for number in range(MANY_CALLS)
        ]
    except (RunnerFailure, Rejected):
        return []


def near(reference: Party, use: Use) -> list[Result]:
    """Return what the use of the reference comes to on inputs that differ by rounding; [] where it
    fails."""
    case = reference.case
    generator = torch.Generator(case.accelerator.device).manual_seed(case.seed)
    is_cast = use.recipe == "dtype" and use.value in FLOATS
    dtype = getattr(torch, str(use.value)) if is_cast else case.cast

    def sets() -> list[InputSet]:
        made = use.sets() if use.sets is not None else [case.usual_inputs()]
        return [shaken(one, generator, dtype) for one in made]

    try:
        return [reference.result(replace(use, sets=sets)) for _ in range(NUM_CALLS)]
    except (RunnerFailure, Rejected):
        return []


def check_of(line: Line, result: str, detail: str) -> ContractCheck:
    return ContractCheck(
        group=line.group,
        aspect=line.aspect,
        result=result,  # type: ignore[arg-type]
        detail=detail[:REASON_CHARS],
    )


def first_line(text: str) -> str:
    """Return the first line of an error."""
    return text.strip().partition("\n")[0][:REASON_CHARS]


def constant_inputs(checks: list[ContractCheck]) -> list[Finding]:
    """Return findings on arguments that no trial and no line has changed."""
    return [
        Finding(rule="input.constant", message=f"{check.aspect}: {check.detail}")
        for check in checks
        if check.group == "arguments"
        and check.result == "not_tried"
        and check.detail != OUT_OF_TIME
    ]
