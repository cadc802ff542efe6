"""Open the verifiers of a run: one a device, or as many as share it.

with ExitStack() as stack:
    jury = Jury(JudgeConfig(devices=("cuda:0", "cuda:1")), stack)
    jury.judges, jury.prefilters
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import profile_of
from cudal1_ci.records import Candidate, Device, Evaluation, Problem, Record, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.validation import at_least
from cudal1_ci.verification import BuildsConfig, Session, TrialConfig
from cudal1_ci.verification.prebuild import SPARE_CORES
from model_training.examples import Verifier

JudgeKind = Literal["product", "toy"]
PREFILTER_LOAD_S, PREFILTER_CALL_S = 20.0, 4.0
PREFILTER_BYTES = 2**28
"""So little that few sets of large inputs are tried: more say little of what raises, and take as
long again."""


class JudgeConfig(Record, frozen=True, kw_only=True):
    """Configure what verifies, and where."""

    kind: JudgeKind = "product"
    """The product's verifier, or that of the toy language, which looks programs up."""
    devices: tuple[str, ...] = ("auto",)
    """One or more verifiers of each: `cuda:0`, `cuda:1`, `cpu`. Devices that no policy trains or
    samples on may time while it does; others have their turn when it is done."""
    num_per_device: int = 1
    """Verifiers of one device examine at the same time, and time in turn."""
    num_prefilters: int = 0
    """Verifiers on the CPU that see plain PyTorch first: what fails on any device needs no GPU
    (cpu_prefilter.py); 0 is none. One a core, without those that timing needs: of the cores of a
    machine four for each GPU are left to it where there are more."""
    trial: TrialConfig = TrialConfig()

    def __post_init__(self) -> None:
        at_least(self, "judge", 1, "num_per_device")
        at_least(self, "judge", 0, "num_prefilters")
        if not self.devices:
            raise ConfigError('judge.devices: expected a device or more, such as ["cuda:0"]')
        if self.kind == "toy" and self.num_prefilters:
            raise ConfigError(
                "judge.num-prefilters: the toy's judge runs no programs, so that there is nothing "
                f"to try; expected 0, got {self.num_prefilters}"
            )

    @property
    def places(self) -> list[str]:
        """Return the device of each verifier."""
        return [one for one in self.devices for _ in range(self.num_per_device)]

    @property
    def policy(self) -> str:
        """Hash of what must agree for a verdict to stand in for another."""
        return self.trial.policy if self.kind == "product" else self.kind

    @property
    def prefilter(self) -> TrialConfig:
        """Return the settings of the verifiers on the CPU: what `trial` says of verdicts, and
        little time and memory, as whatever needs more goes to a GPU."""
        trial = self.trial
        return TrialConfig(
            seed=trial.seed,
            weights=trial.weights,
            load_s=min(trial.load_s, PREFILTER_LOAD_S),
            call_s=min(trial.call_s, PREFILTER_CALL_S),
            memory_bytes=PREFILTER_BYTES,
            num_launches=1,  # none is made; of one alone a verifier knows problems that come again
        )


class Jury:
    """Hold the verifiers of a run. Either part is opened when it is first asked for."""

    def __init__(self, config: JudgeConfig, stack: contextlib.ExitStack) -> None:
        self.config, self._stack = config, stack
        self.homes: dict[str, int] = {}
        """Which verifier had each task the last time (work_queue.py)."""
        self._opened: list[Session] = []

    @cached_property
    def judges(self) -> Sequence[Verifier]:
        """Return all verifiers.

        Raises: ConfigError in one of several processes that train together.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError(
                "what is judged is sampled by one process: start this command without `accelerate "
                "launch` or `torchrun`, and name more devices in judge.devices; stage 1 alone "
                "(`supervised`) trains in several processes"
            )
        judges = self._stack.enter_context(opened_judges(self.config))
        self._opened += [one for one in judges if isinstance(one, Session)]
        return judges

    def spent(self) -> dict[str, list[float]]:
        """Return times and seconds by what all verifiers of GPUs did since the last call."""
        found: dict[str, list[float]] = {}
        for judge in self._opened:
            for what, (times, seconds) in judge.spent().items():
                one = found.setdefault(what, [0, 0.0])
                one[0] += times
                one[1] = round(one[1] + seconds, 3)
        return found

    @cached_property
    def prefilters(self) -> Sequence[Session]:
        """Return verifiers on the CPU, where there are any."""
        return self._stack.enter_context(opened_prefilters(self.config))


@contextlib.contextmanager
def opened_judges(config: JudgeConfig) -> Iterator[list[Verifier]]:
    """Open all verifiers of a run; they end with the block."""
    if config.kind == "toy":
        from model_training.toy import ToyJudge  # here, as it is for tests

        yield [ToyJudge() for _ in config.places]
        return
    with contextlib.ExitStack() as stack:
        sessions = [Session(config.trial, device=place) for place in config.places]
        yield [stack.enter_context(one) for one in sessions]


@contextlib.contextmanager
def opened_prefilters(config: JudgeConfig) -> Iterator[list[Session]]:
    """Open the verifiers on the CPU; a process of each is started when it is first asked."""
    cores = spare_cores(sorted(os.sched_getaffinity(0)), config)
    sessions = [
        Session(config.prefilter, device="cpu", builds=BuildsConfig(keep=False), cores=cores)
        for _ in range(config.num_prefilters)
    ]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in sessions]


def spare_cores(cores: Sequence[int], config: JudgeConfig) -> Sequence[int]:
    """Return cores that timing on each device leaves: verifiers of GPUs time on the last ones. All
    where there are no more than that."""
    num_timing = len(set(config.devices)) * (config.trial.threads + SPARE_CORES)
    return cores[: max(0, len(cores) - num_timing)] or cores


@runtime_checkable
class Checks(Protocol):
    """Name a verifier that checks whether it can verify a task, and profiles the reference; the
    product's does, the toy's does not."""

    def check(self, problem: Problem) -> Verdict: ...

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str: ...


@runtime_checkable
class Builds(Protocol):
    """Name a verifier that compiles programs before their turn."""

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None: ...


@dataclass
class Shared:
    """Let several threads ask a verifier, one at a time."""

    judge: Verifier
    lock: threading.Lock = field(default_factory=threading.Lock)

    def device(self) -> Device:
        with self.lock:
            return self.judge.device()

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        with self.lock:
            return self.judge.evaluate(problem, candidate)

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        if isinstance(self.judge, Builds):
            with self.lock:
                self.judge.build_ahead(problem, candidates)

    def prepare(self, problem: Problem, archive: Archive) -> str:
        """Return the status of the reference; where it passed, its profile is noted."""
        if not isinstance(self.judge, Checks):
            return "passed"
        with self.lock:
            judge, device = self.judge, self.judge.device()
            status = judge.check(problem).status
            if status == "passed":
                profile_of(
                    problem, archive, device, lambda name: judge.profile(name, is_candidate=False)
                )
            return status
