"""Run a verifier in an actor of Ray, and ask it from the calling machine.

`VerifierActor` runs in the actor, `RemoteVerifier` asks it. Records cross as bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from cudal1_ci import __version__
from cudal1_ci.errors import CudaL1Error, UnsupportedError, WorkerError
from cudal1_ci.pool.config import SessionConfig
from cudal1_ci.pool.slots import SlotLost
from cudal1_ci.records import (
    CallCost,
    Candidate,
    Demand,
    Device,
    Evaluation,
    Problem,
    Program,
    Record,
    Verdict,
    Workload,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.verification.prebuild import POLL_S, compiles

T = TypeVar("T")

MAX_CHARS = 200


class Introduction(Record, frozen=True, kw_only=True):
    """Describe an actor: its version, policy, device and niceness."""

    version: str
    policy: str
    name: str
    device: Device
    niceness: int
    """Of its process and so of the verifier's; above 0 others of the machine go first."""


for form in (Introduction, Candidate, Problem, Evaluation, Verdict, Demand):
    msgspec.msgpack.Decoder(form)  # two threads that do so at once for the first time crash


class VerifierActor:
    """A Session. Each answer is that of its method of the same name; one question at a time."""

    def __init__(self, config: bytes, device: str, number: int):
        self.config = decoded(config, SessionConfig)
        self.number = number
        self.session = self.config.session(device)
        self._problem_id: str | None = None
        self._built: dict[str, Candidate] = {}
        """What of that problem was given to be built, by its id."""

    def introduce(self) -> bytes:
        """Start the verifier. Raises: WorkerError, UnsupportedError."""
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray's workers give way to others, unasked
        device = self.session.device()
        ray = ray_module()
        gpus = ray.get_gpu_ids()
        place = f"GPU {gpus[0]}" if gpus else f"CPU #{self.number}"
        said = Introduction(
            version=__version__,
            policy=self.config.trial.policy,
            name=f"{ray.util.get_node_ip_address()} {place}",
            device=device,
            niceness=os.getpriority(os.PRIO_PROCESS, 0),
        )
        return encoded(said)

    def check(self, problem: bytes, most_s: bytes) -> bytes:
        limit = decoded(most_s, float | None)  # type: ignore[arg-type]
        return encoded(self.session.check(decoded(problem, Problem), limit))

    def build_ahead(self, problem: bytes, candidates: bytes) -> bytes:
        of, several = decoded(problem, Problem), decoded(candidates, tuple[Candidate, ...])
        if of.id != self._problem_id:
            self._problem_id, self._built = of.id, {}
        self._built |= {one.id: one for one in several}
        self.session.build_ahead(of, several)
        return encoded(True)

    def first_ready(self, candidate_ids: bytes) -> bytes:
        """Return the place of the first that need not be waited for; wait where there is none."""
        ids = decoded(candidate_ids, tuple[str, ...])
        unbuilt = [place for place, one in enumerate(ids) if one not in self._built]
        if unbuilt:
            return encoded(unbuilt[0])
        first = next(iter(self.session.in_turn([self._built[one] for one in ids])))
        return encoded(ids.index(first.id))

    def screen(self, problem: bytes, candidate: bytes, most_s: bytes) -> bytes:
        return encoded(
            self.session.screen(
                decoded(problem, Problem),
                decoded(candidate, Candidate),
                decoded(most_s, float | None),  # type: ignore[arg-type]
            )
        )

    def confirm(self, problem: bytes, candidate: bytes, most_s: bytes) -> bytes:
        return encoded(
            self.session.confirm(
                decoded(problem, Problem),
                decoded(candidate, Candidate),
                decoded(most_s, float | None),  # type: ignore[arg-type]
            )
        )

    def evaluate(self, problem: bytes, candidate: bytes) -> bytes:
        return encoded(
            self.session.evaluate(decoded(problem, Problem), decoded(candidate, Candidate))
        )

    def examine_contract(self, problem: bytes, evaluation: bytes) -> bytes:
        return encoded(
            self.session.examine_contract(
                decoded(problem, Problem), decoded(evaluation, Evaluation)
            )
        )

    def profile(self, workload: bytes, is_candidate: bytes) -> bytes:
        return encoded(
            self.session.profile(decoded(workload, str), is_candidate=decoded(is_candidate, bool))
        )

    def record(self, problem: bytes, workload: bytes) -> bytes:
        found = self.session.record(decoded(problem, Problem), decoded(workload, Workload))
        return encoded(found)

    def price(self, program: bytes, workload: bytes, energy_s: bytes) -> bytes:
        found = self.session.price(
            decoded(program, Program),  # type: ignore[arg-type]
            decoded(workload, Workload),
            decoded(energy_s, float),
        )
        return encoded(found)

    def demand(self, workload: bytes) -> bytes:
        return encoded(self.session.demand(decoded(workload, str)))


class RemoteVerifier:
    """Ask an actor what a `Session` is asked; it measures on that device. Each question may raise
    WorkerError, SlotLost."""

    def __init__(self, ray: Any, actor: Any, device: Device):
        self._ray, self._actor, self._device = ray, actor, device

    def device(self) -> Device:
        """Return what is measured on, as the actor said of itself when it began."""
        return self._device

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        verdict: Verdict = self._ask("check", problem, most_s, form=Verdict)
        return verdict

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        """Send what compiles anything, and only that."""
        built = tuple(one for one in candidates if compiles(one.program))
        if built:
            self._ask("build_ahead", problem, built, form=bool)

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[Candidate]:
        """Yield all of them, those last that are still being built. Once it `is_over` none is
        waited for; the actor, which may wait still, is asked nothing more then."""
        left = list(candidates)
        while left:
            is_built = any(compiles(one.program) for one in left)
            yield left.pop(self._first_ready(left, is_over) if is_built else 0)

    def _first_ready(self, candidates: Sequence[Candidate], is_over: Callable[[], bool]) -> int:
        with translated_errors(self._ray, is_verifier_kept=True):
            asked = self._begin("first_ready", tuple(one.id for one in candidates))
            while not self._ray.wait([asked], timeout=POLL_S)[0]:
                if is_over():
                    return 0
            reply = self._ray.get(asked)
        return decoded(reply, int)

    def screen(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        found: Evaluation = self._ask("screen", problem, candidate, most_s, form=Evaluation)
        return msgspec.structs.replace(found, candidate=candidate)

    def confirm(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        found: Evaluation = self._ask("confirm", problem, candidate, most_s, form=Evaluation)
        return msgspec.structs.replace(found, candidate=candidate)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        found: Evaluation = self._ask("evaluate", problem, candidate, form=Evaluation)
        return msgspec.structs.replace(found, candidate=candidate)

    def examine_contract(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        found: Evaluation = self._ask("examine_contract", problem, evaluation, form=Evaluation)
        return msgspec.structs.replace(found, candidate=evaluation.candidate)

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        form = list[dict[str, Any]] | str
        found: list[dict[str, Any]] | str = self._ask("profile", workload, is_candidate, form=form)
        return found

    def record(self, problem: Problem, workload: Workload) -> Recording | str:
        found: Recording | str = self._ask("record", problem, workload, form=Recording | str)
        return found

    def price(self, program: Program, workload: Workload, energy_s: float = 0.0) -> CallCost | str:
        form = CallCost | str
        found: CallCost | str = self._ask("price", program, workload, energy_s, form=form)
        return found

    def demand(self, workload: str) -> Demand | str:
        found: Demand | str = self._ask("demand", workload, form=Demand | str)
        return found

    def _ask(self, method: str, *arguments: Any, form: Any) -> Any:
        with translated_errors(self._ray, is_verifier_kept=True):
            reply = self._ray.get(self._begin(method, *arguments))
        return msgspec.msgpack.decode(reply, type=form)

    def _begin(self, method: str, *arguments: Any) -> Any:
        """Return what Ray calls the answer that is to come."""
        return getattr(self._actor, method).remote(*map(encoded, arguments))


@contextlib.contextmanager
def translated_errors(ray: Any, *, is_verifier_kept: bool = False) -> Iterator[None]:
    """Raise SlotLost for an actor that is gone, and what the actor raised itself. A verifier that
    died there is a lost slot too, unless the actor is kept and starts another one."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, WorkerError) and not is_verifier_kept:
            raise SlotLost(str(error.cause)) from error
        if isinstance(error.cause, CudaL1Error):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise SlotLost(" ".join(str(error).split())[:MAX_CHARS]) from error


def encoded(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def decoded(data: bytes, form: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=form)


def ray_module() -> Any:
    """Import Ray. Raises: UnsupportedError."""
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError(
            "Ray is not installed here: `pip install 'cudal1-ci[ray]'`; GPUs of one machine need "
            "none of it"
        ) from error
    return ray
