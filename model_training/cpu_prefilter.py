"""Try programs on the CPU before a GPU's verifier sees them.

    prefilter = CpuPrefilter(judges, archive, config.prefilter)
    prefilter.each([(key, problem, candidates)], lambda key, settled: ...)

Most programs that a small model writes raise: an undefined name, shapes that do not fit. On a GPU
each of them costs a process with a context of its own; on a CPU a fork, and a machine has many more
cores than GPUs. So plain PyTorch is examined on a CPU first, without being timed, and what fails
there as it would on any device is settled. The GPU's verifier decides on all else.

Settled (`is_trusted`) is an error of Python itself on import, construction or call; a RuntimeError
of torch about shapes; an output of another shape or with another number of tensors; a state_dict
with other keys, where no weights are drawn for it; and wrong values where at least half of an
output's elements are off by more than any precision explains: that is another function.

Never settled is what passed, and a failure that may be the CPU's own:

- a message about a device, an operator that is not implemented, memory, threads, or strides
  (attention and convolutions lay their results out otherwise on a GPU, and `view` raises where the
  layout does not fit);
- AssertionErrors, which may be about such things and not say so; a process that died, a timeout;
- other wrong values, even if they are far off: the reference's own error, the order of equal
  elements, the side to which a rounding falls and what a generator draws from a seed are others on
  a GPU, so with weights that are drawn no values settle anything;
- other dtypes, as each device has its own rules for mixed precision; and cheats, which the GPU's
  verifier convicts.

Not tried are programs that mention a GPU, a compiler or a CPU (`may_try`), tasks whose reference
the CPU's verifier does not accept or takes long to learn, and what is left of a task after a while.
"""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.llm_loop import profile_key
from cudal1_ci.records import (
    Candidate,
    Device,
    Evaluation,
    Finding,
    Problem,
    Program,
    TextProgram,
    Verdict,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import TrialConfig
from model_training.work_queue import WorkQueue, at_work

K = TypeVar("K")
REFERENCE = "prefiltered-reference-status"
"""Kind of a note: what the verifier on the CPU says of a task's own program."""
PASSED, BROKEN, GIVEN_UP, SLOW = "passed", "harness_error", "inconclusive", "slow"
LEARN_S = 4.0
"""Of learning a reference on one core; nine of ten take less, and a candidate that is right a
third. One slow task is what all answers of a step wait for."""
GIVE_UP_S = 3 * LEARN_S
"""When learning is ended: by then it would be too slow with a whole machine at work next to it. (Of
a linear layer of 8192 by 8192 one core takes half a minute to learn what a GPU takes 7 s for.)"""
TASK_S = 5.0
"""For the candidates of a task; the remaining ones are then passed on."""

ERRORS_OF_PYTHON = frozenset(
    {
        *("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ValueError"),
        *("IndexError", "KeyError", "ZeroDivisionError", "ImportError", "ModuleNotFoundError"),
        *("SyntaxError", "IndentationError", "TabError"),
    }
)
ERRORS_OF_TORCH = frozenset({"RuntimeError", "NotImplementedError"})
_SHAPES = re.compile(
    r"shape|\bsizes?\b|dimension|broadcast|channels|einsum|ambiguous|leaf variable"
    r"|missing the required \"forward\"",
    re.IGNORECASE,
)
_OF_THE_MACHINE = re.compile(
    r"cuda|gpu|cpu|nvidia|driver|device|backend|accelerator|mkldnn|onednn|primitive|not implemented"
    r"|available kernel|memory|alloc|thread|resource|shared object|strid|contiguous|channels_last",
    re.IGNORECASE,
)
_NOT_PLAIN = re.compile(
    r"cuda|triton|compile\(|torch\.compile|load_inline|cpp_extension|nvrtc|nvcc|cudnn|cublas|cutlass"
    r"|cupy|numba|ctypes|inductor|dynamo|accelerator|autocast|get_device|mkldnn|\bcpu\b|is_cpu",
    re.IGNORECASE,
)
_FAR = re.compile(r"(?P<far>\d+) of (?P<all>\d+) elements ")
OF_WEIGHTS = frozenset({"state.keys", "values.mismatch"})
"""Rules whose findings may come of other weights."""


class PrefilterVerifier(Protocol):
    """Name what is needed of the product's session: it examines a program without timing it."""

    def device(self) -> Device: ...

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict: ...

    def examine(self, problem: Problem, candidate: Candidate) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Hold a candidate that no GPU's verifier need see."""

    evaluation: Evaluation
    is_known: bool
    """Whether the verdict was there before."""


Found = dict[str, Settled]
"""By the candidates' ids."""
Tried = tuple[K, Problem, Sequence[Candidate]]
"""Candidates of a problem, each once, under a name of the caller's."""


class CpuPrefilter:
    """Hold verifiers on the CPU, and an archive of what they have settled."""

    def __init__(
        self,
        judges: Sequence[PrefilterVerifier],
        archive: Archive,
        config: TrialConfig,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `go_on` between candidates; what it raises ends the prefilter."""
        if not judges:
            raise ValueError("expected a judge")
        self.judges, self.archive, self.go_on = judges, archive, go_on
        self.policy, self.weights = config.policy, config.weights
        self.took_s = 0.0
        """What the last tasks have taken together."""
        self.homes: dict[str, int] = {}
        """Which verifier had each problem the last time (work_queue.py)."""

    def learn(self, problems: Sequence[Problem]) -> None:
        """Learn references before there are answers, so that no answer waits to find out which take
        too long."""
        pieces: WorkQueue[Problem] = WorkQueue(len(self.judges), lambda one: one.id, self.homes)
        for problem in problems:
            pieces.put(problem)

        def work(judge: PrefilterVerifier, problem: Problem) -> None:
            # A verifier that dies notes nothing: its candidates say it again.
            with contextlib.suppress(WorkerError):
                self.accepts(judge, problem, judge.device())

        with at_work(pieces, self.judges, work):
            pass

    def each(self, tasks: Sequence[Tried[K]], done: Callable[[K, Found], bool]) -> None:
        """Call `done` for each task with what is settled, from any thread and as it comes, until it
        returns False. All candidates of a task are tried by one verifier, that which had it before
        unless it has too much to do."""
        started_s = time.monotonic()
        pieces: WorkQueue[Tried[K]] = WorkQueue(len(self.judges), lambda one: one[1].id, self.homes)
        is_wanted = [True]
        for one in tasks:
            pieces.put(one)

        def work(judge: PrefilterVerifier, one: Tried[K]) -> None:
            key, problem, candidates = one
            if is_wanted[0] and not done(key, self.settled(judge, problem, candidates)):
                is_wanted[0] = False

        with at_work(pieces, self.judges, work):
            pass
        self.took_s = time.monotonic() - started_s

    def settled(
        self, judge: PrefilterVerifier, problem: Problem, candidates: Sequence[Candidate]
    ) -> Found:
        """Settle those of a problem's candidates that fail on any device. A verifier that dies
        settles nothing of the others."""
        found: Found = {}
        try:
            device = judge.device()
            for one in candidates:
                known = self.archive.lookup(problem.id, one.id, device.key, self.policy)
                if known is not None and self.trusts(known.verdict):
                    found[one.id] = Settled(evaluation=known, is_known=True)
            left = [one for one in candidates if one.id not in found]
            if not left or not self.accepts(judge, problem, device):
                return found
            ends_s = time.monotonic() + TASK_S
            for one in left:
                self.go_on()
                if (started_s := time.monotonic()) > ends_s:
                    break
                verdict = judge.examine(problem, one)
                if self.trusts(verdict):
                    took_s = time.monotonic() - started_s
                    evaluation = Evaluation(
                        candidate=one, verdict=verdict, device=device, elapsed_s=took_s
                    )
                    self.archive.record(evaluation, self.policy)
                    found[one.id] = Settled(evaluation=evaluation, is_known=False)
        except WorkerError:
            pass
        return found

    def trusts(self, verdict: Verdict) -> bool:
        """Return whether a verdict settles it. With weights that are drawn values are others on
        each device, and that the keys of a state differ is said where values do too."""
        if self.weights == "seed" and {one.rule for one in verdict.findings} & OF_WEIGHTS:
            return False
        return is_trusted(verdict)

    def accepts(self, judge: PrefilterVerifier, problem: Problem, device: Device) -> bool:
        """Return whether a reference can be verified against on the CPU, in the time that there is;
        asked once of a problem."""
        key = f"{profile_key(problem, device)}/{self.policy}"
        status = self.archive.noted(REFERENCE, key, str)
        if status is None:
            self.go_on()
            started_s = time.monotonic()
            try:
                status = judge.check(problem, GIVE_UP_S).status
            except WorkerError:
                status = BROKEN
            if status in (PASSED, BROKEN, GIVEN_UP) and time.monotonic() - started_s > LEARN_S:
                status = SLOW
            self.archive.note(REFERENCE, key, status)
        return status == PASSED


def may_try(program: Program) -> bool:
    """Return whether a CPU may say something of a program: it mentions no GPU, compiler or device,
    or nothing of it can run anywhere."""
    if not isinstance(program, TextProgram):
        return False
    if _NOT_PLAIN.search(program.source) is None:
        return True
    try:
        ast.parse(program.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return False


def is_trusted(verdict: Verdict) -> bool:
    """Return whether a CPU's verdict means the same on any device."""
    if not verdict.findings:
        return False
    finding = verdict.findings[0]
    match verdict.status, finding.rule:
        case ("compile_error", "program.import") | ("runtime_error", "program.raised"):
            return is_of_the_program(finding.message)
        case ("runtime_error", "state.keys") | ("incorrect_shape", "output.shape"):
            return True
        case ("incorrect_shape", "output.structure"):
            return has_other_tensors(finding)
        case ("incorrect_values", "values.mismatch"):
            return is_another_function(finding)
    return False


def is_of_the_program(message: str) -> bool:
    """Return whether an error, `NameError: name 'x' is not defined`, comes of the text alone."""
    name, _, text = message.partition(": ")
    if _OF_THE_MACHINE.search(text):
        return False
    return name in ERRORS_OF_PYTHON or (
        name in ERRORS_OF_TORCH and _SHAPES.search(text) is not None
    )


def has_other_tensors(finding: Finding) -> bool:
    """Return whether an output has another number of tensors (`*` each); plain values in its
    structure may have been computed."""
    want, _, got = (finding.evidence or "").partition(", got ")
    return want.count("*") != got.count("*")


def is_another_function(finding: Finding) -> bool:
    """Return whether most of an output is wrong beyond any precision (`correctness.py`)."""
    said = _FAR.match(finding.evidence or "")
    return said is not None and 2 * int(said["far"]) >= int(said["all"])
