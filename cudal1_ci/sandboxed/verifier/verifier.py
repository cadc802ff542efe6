"""The judge: holds what a candidate must not know, and says what it is worth.

It never loads user code. Requests come from the host, one at a time:

    describe             -> the device
    check    {problem}   -> verdict on the reference alone
    examine  {program}   -> verdict on a candidate of the problem that was last checked; its kernels
                            under the workload `profiled` are looked at meanwhile; what was examined
                            is timed itself where it `keeps` its process
    launch   {workload}  -> paired times of the candidate that was last examined
    profile  {workload, is_candidate} -> where the time of a call goes, untimed
    demand   {workload}  -> what a call of the reference asks of the device, untimed

Each reply says besides what of the time was `spent` on runners (spent.py). A request with a `turn`
names the device that this process is to hold beside others meanwhile, and to let go while somebody
times (giving_way.py); without one the host holds it.

What it believes of a runner: nothing about time (its own clock counts) and nothing about values
(it reads them from shared memory). What a runner says of structure, aliasing and settings is
believed only to its disadvantage; a candidate that forges it is for the sandbox and the static
rules to stop.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..builds.build_keys import architecture_of
from ..confinement import missing
from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..memory.accelerators import (
    Accelerator,
    accelerator,
    available_memory_bytes,
    free_memory_bytes,
)
from ..memory.cuda import DriverError
from ..timing.clock import ClockConfig, launch, timed_slots
from ..timing.cores import cores_for, cores_of_turns
from ..timing.giving_way import Turn
from ..timing.reuse_runners import Kept
from ..timing.runner_groups import Crews
from ..wire.channel import Channel, ChannelClosed
from .cases import Case, Limits, Rejected, verdict_of
from .correctness import Examined, examine
from .failures import rejection_of_launch, says_out_of_memory
from .reference import make_case
from .reference_cache import Known
from .stream_order import UNORDERED

SPARE_S = 30.0
"""Of learning a reference: beyond it no further workload of the problem is taken up."""
ANSWERED = ("check", "examine", "launch", "profile", "demand")
"""Requests with an answer for when there is no memory."""


def main(
    channel: Channel,
    num_threads: int,
    device: str,
    process: subprocess.Popen[bytes],
    template_channel: Channel,
) -> None:
    """Answer the host until it hangs up. `process` is that of the template."""
    torch.set_num_threads(1)
    limit_bytes = available_memory_bytes()
    here = accelerator(device)
    # The driver of a GPU reserves more addresses than there is memory.
    template = Template(process, template_channel, limit_bytes if here.kind == "cpu" else None)
    if here.kind == "cpu":
        template.cores = cores_for(num_threads)
    else:
        template.device = here.kind
        template.keep_to(here.describe()["uuid"])
    judge = Judge(num_threads, here, template)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "describe": judge.describe,
        "check": judge.check,
        "examine": judge.examine,
        "launch": judge.launch,
        "dismiss": judge.leave,
        "profile": judge.profile,
        "demand": judge.demand,
    }
    try:
        while True:
            message, _ = channel.receive()
            op, turn = message.pop("op"), message.pop("turn", None)
            with taking_turns(template, turn, channel):
                try:
                    reply = answers[op](**message)
                except (torch.cuda.OutOfMemoryError, DriverError) as error:
                    reply = judge.without_memory(op, error)
                template.settle()
            channel.send({**reply, "spent": judge.template.spent.taken()})
    except ChannelClosed:
        return
    finally:
        judge.dismiss()
        judge.kept.close()
        judge.template.close()


@contextlib.contextmanager
def taking_turns(template: Template, name: str | None, channel: Channel) -> Iterator[None]:
    """Hold the device of that name beside others, and let it go while somebody times; no name is
    none that this process holds."""
    if name is None:
        yield
        return
    with Turn(name, stop=template.stop, go_on=template.go_on, host=channel) as turn:
        template.turn = turn
        try:
            yield
        finally:
            template.turn = None


class Judge:
    """The problem at hand, what is known of its reference, and the candidate at hand."""

    def __init__(self, num_threads: int, accelerator: Accelerator, template: Template):
        self.num_threads = num_threads
        self.accelerator = accelerator
        self.template = template
        self.crews = Crews(template)
        self.kept = Kept(template)
        self.keeps = False
        """Whether the candidate at hand is timed by processes that are kept."""
        self.cores = sorted(os.sched_getaffinity(0))
        self.is_open = False
        self.cases: dict[str, Case] = {}
        self.at_hand: dict[str, Case] = {}
        """Those under which the candidate at hand was examined."""
        self.drawn: dict[str, Case] = {}
        """With weights that constructors draw, once they are asked for."""
        self.problem: dict[str, Any] = {}
        self.weights = "checkpoint"
        self.precision = "strict"
        self.findings: list[dict[str, Any]] = []
        self.known = Known(accelerator.kind == "cuda")
        self.candidate: dict[str, Any] = {}
        self.slots: dict[str, list[dict[str, Any]]] = {}
        self.num_calls: dict[str, int] = {}
        """In a timed batch of the candidate at hand, by workload, from its first launch on."""
        self.tight: set[str] = set()
        """Workloads under which a launch of it has run out of memory."""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        """What ran in a call of it, by workload, where that is known."""
        # Not from the seed that is configured: who can guess the inputs of timed calls can have
        # computed them before.
        self.rng = random.SystemRandom()

    def describe(self) -> dict[str, Any]:
        """The record Device."""
        return {
            **self.accelerator.describe(),
            "architecture": architecture_of(self.accelerator.kind),
            "num_threads": self.num_threads,
            "sandbox_missing": missing(self.template.sandbox),
        }

    def check(
        self,
        problem: dict[str, Any],
        limits: dict[str, Any],
        seed: int,
        memory_bytes: int | None,
        share_bytes: int | None,
        weights: str,
        precision: str,
        store: dict[str, Any] | None,
        key: str | None = None,
        keeps: bool = False,
        cores: list[int] | None = None,
    ) -> dict[str, Any]:
        """Learn the reference; the verdict is `passed` when it can be judged against. Of the
        device's memory a trial gets `memory_bytes` at the most, and `share_bytes` while others may
        work there; None is what is free. `store` is where what programs build is kept, None where
        it is not. By its `key` a problem is known when it comes again, with the same settings.
        `keeps`: candidates are timed beside processes that it was learned from. A judge that does
        not time is given the `cores` that it and its runners may be on."""
        self.dismiss()
        if cores is not None:
            os.sched_setaffinity(0, cores)
            self.template.cores = cores
        self.weights, self.precision = weights, precision
        self.at_hand, self.drawn, self.problem = {}, {}, problem
        if not self.is_open:
            self.template.build_for(architecture_of(self.accelerator.kind), store)
            self.is_open = True
        self.template.builds.forget_checkouts()
        self.cases = {}
        self.accelerator.limit_bytes = memory_bytes
        self.accelerator.share_bytes = share_bytes
        self.limits = Limits(**limits)
        with self.template.spent.over("recall"):
            known = self.known.find(key)
        if known is not None:
            self.cases, self.findings = known
            return {"status": "passed", "findings": self.findings}
        started_s = time.monotonic()
        # What other candidates were timed beside, and its memory, would be let go in the midst of
        # it: after it was settled how much there is.
        self.kept.close()
        try:
            self.findings = self.learn(seed, keeps)
        except Rejected as rejected:
            self.kept.close()
            self.cases = {}
            return verdict_of(rejected)
        if key is not None:
            took_s = time.monotonic() - started_s
            near, far = self.accelerator.memory_bytes(), free_memory_bytes()
            with self.template.spent.over("put aside"):
                self.known.keep(key, (self.cases, self.findings), near, far, took_s)
        return {"status": "passed", "findings": self.findings}

    def learn(self, seed: int, keeps: bool = False) -> list[dict[str, Any]]:
        """The cases of the problem at hand, and what there is to say of them. Raises Rejected."""
        # Of several workloads each would end the processes of the one before.
        hold = self.kept.keep if keeps and len(self.problem["workloads"]) == 1 else None
        findings: list[dict[str, Any]] = []
        started_s = self.template.awake_s()
        for number, workload in enumerate(self.problem["workloads"]):
            if number and self.template.awake_s() - started_s > SPARE_S:
                message = f"`{workload['name']}` was left out: the reference is slow on others"
                findings.append({"rule": "workload.left_out", "message": message})
                continue
            case = make_case(
                self.template,
                self.accelerator,
                self.problem,
                workload,
                self.limits,
                seed,
                hold=hold,
                precision=self.precision,
            )
            self.cases[case.name] = case
            findings += [
                {**finding, "message": f"{case.name}: {finding['message']}"}
                for finding in case.findings
            ]
        return findings

    def examine(
        self, program: dict[str, Any], profiled: str | None = None, keeps: bool = False
    ) -> dict[str, Any]:
        """Correctness of a candidate on every workload that was taken up. Under the workload
        `profiled` its kernels are looked at meanwhile, which it does not ask that `keeps` the
        processes to time them: a profiler that has been in one slows down its launches."""
        assert not (keeps and profiled)
        self.dismiss()
        self.keeps = keeps
        self.candidate, self.slots, self.at_hand = program, {}, {}
        self.num_calls, self.rows, self.tight = {}, {}, set()
        abs_error = rel_error = 0.0
        findings = list(self.findings)
        try:
            for case in self.cases.values():
                case, found = self.examine_one(case, program, profiles=case.name == profiled)
                self.at_hand[case.name] = case
                self.slots[case.name] = timed_slots(case, found.call)
                if found.rows is not None:
                    self.rows[case.name] = found.rows
                abs_error = max(abs_error, found.max_abs_error)
                rel_error = max(rel_error, found.max_rel_error)
                findings += found.findings
        except Rejected as rejected:
            self.kept.dismiss()
            return verdict_of(rejected)
        return {
            "status": "passed",
            "findings": findings,
            "max_abs_error": abs_error,
            "max_rel_error": rel_error,
        }

    def examine_one(
        self, case: Case, program: dict[str, Any], *, profiles: bool
    ) -> tuple[Case, Examined]:
        """What is known of a candidate that is right, and the case under which it is. With
        `weights` "seed" one whose state_dict differs is compared with the reference under the
        weights that both draw, as KernelBench does. Raises Rejected."""
        hold = self.kept.hold if self.keeps else None
        try:
            found = examine(case, self.template, program, self.limits, profiles=profiles, hold=hold)
            return case, found
        except Rejected as rejected:
            if self.weights != "seed" or case.train or rejected.finding["rule"] != "state.keys":
                raise
            differs = rejected
        if case.name not in self.drawn:
            (workload,) = (w for w in self.problem["workloads"] if w["name"] == case.name)
            self.drawn[case.name] = make_case(
                self.template,
                self.accelerator,
                self.problem,
                workload,
                self.limits,
                self.rng.randrange(2**31),
                draws_weights=True,
                precision=self.precision,
            )
        try:
            drawn = self.drawn[case.name]
            found = examine(
                drawn, self.template, program, self.limits, profiles=profiles, hold=hold
            )
        except Rejected as rejected:
            # It may draw other weights; its place on the caller's stream does not depend on them.
            is_of_values = rejected.status in ("incorrect_values", "precision")
            if is_of_values and rejected.finding["rule"] != UNORDERED:
                raise differs from rejected
            raise
        words = f"{differs}; judged with the weights that both draw under one seed"
        found.findings.append({"rule": "state.keys", "message": words})
        return self.drawn[case.name], found

    def launch(self, workload: str, clock: dict[str, Any]) -> dict[str, Any]:
        """Times of one launch, or the verdict that they led to, or that which there is when the
        launch is not made again: `interrupted`, because the reference failed. Beside the times a
        `suspicion`: the verdict when more launches confirm it. One that ran out of memory before
        its rounds counted is made again by new processes, with as little of it as there can be:
        later nobody has a second try."""
        if workload not in self.at_hand:
            return {"left_out": True}
        cores = self.turns(clock.pop("gpu_index", None))

        def launched() -> dict[str, Any]:
            try:
                return self.launch_once(workload, cores, clock)
            except (torch.cuda.OutOfMemoryError, DriverError) as error:
                return self.without_memory("launch", error)

        reply = launched()
        has_begun = self.at_hand[workload].counts
        if workload in self.tight or has_begun or not lacks_memory(reply):
            return reply
        self.tight.add(workload)
        self.kept.close()
        self.dismiss()
        return launched()

    def launch_once(
        self, workload: str, cores: list[int] | None, clock: dict[str, Any]
    ) -> dict[str, Any]:
        """See `launch`. Raises what a lack of memory of the judge's own raises."""
        case, is_tight = self.at_hand[workload], workload in self.tight
        config = ClockConfig(
            memory_bytes=self.accelerator.memory_bytes(is_alone=True),
            cores=cores,
            is_least=is_tight,
            **clock,
        )
        try:
            result = launch(
                case,
                self.kept if self.keeps and not is_tight else self.crews,
                self.candidate,
                self.slots[workload],
                self.limits,
                config,
                self.rng,
                self.num_calls.get(workload),
            )
        except Rejected as rejected:
            self.kept.close()  # they may have been left in the middle of a round
            return {"verdict": verdict_of(rejected)}
        except RunnerFailure as failure:
            self.kept.close()
            return {"interrupted": verdict_of(rejection_of_launch(failure))}
        self.num_calls[workload] = result["num_calls"]
        contradiction = result.pop("contradiction")
        if contradiction is None:
            return {"launch": result}
        return {"launch": result, "suspicion": verdict_of(contradicted(**contradiction))}

    def leave(self, goes_on: bool) -> dict[str, Any]:
        """The device, to others: end what was started for launches that are not to come, the
        candidate too unless it `goes_on`, and keep no more memory than a judge may beside them."""
        self.crews.dismiss()
        if not goes_on:
            self.kept.dismiss()
        # To ask for it gives back what this process has cached.
        self.kept.let_go(self.accelerator)
        return {}

    def dismiss(self) -> None:
        """End what was started for launches that are not to come."""
        self.crews.dismiss()
        self.kept.dismiss()

    def turns(self, gpu_index: int | None) -> list[int] | None:
        """Cores for the runners of a launch on a GPU, and none of them for this process any more;
        None where there are too few."""
        if gpu_index is None:
            return None
        found = cores_of_turns(self.cores, self.num_threads, gpu_index)
        if found is None:
            return None
        cores, apart = found
        os.sched_setaffinity(0, set(self.cores) - apart)
        return cores

    def without_memory(self, op: str, error: Exception) -> dict[str, Any]:
        """The answer when the judge itself found no memory on the device, which says nothing of
        any program. Raises the error when it is another one."""
        if "out of memory" not in str(error) or op not in ANSWERED:
            raise error
        if op == "check":
            self.cases = {}
        self.known.clear()
        self.kept.close()
        torch.cuda.empty_cache()
        message = f"the device has too little memory for the judge: {str(error)[:300]}"
        verdict = verdict_of(Rejected("inconclusive", "memory.device", message))
        if op in ("profile", "demand"):
            return {"failure": message}
        return {"verdict": verdict} if op == "launch" else verdict

    def profile(self, workload: str, is_candidate: bool) -> dict[str, Any]:
        """Kernels or operators of a call of the reference, or of the candidate at hand, after
        which no process of it is there to be timed."""
        case = (self.at_hand if is_candidate else self.cases).get(workload)
        if case is None:
            return {"left_out": True}
        if is_candidate and workload in self.rows:
            return {"rows": self.rows[workload]}
        program = self.candidate if is_candidate else case.program
        try:
            if is_candidate:
                with self.kept.last_use(workload) as runner:
                    if runner is not None:
                        return {"rows": case.profiled(runner, self.limits)}
            return {"rows": case.profile(self.template, program, self.limits)}
        except (Rejected, RunnerFailure) as failure:
            return {"failure": str(failure)}

    def demand(self, workload: str) -> dict[str, Any]:
        """Bytes and operations of a call of the reference."""
        case = self.cases.get(workload)
        if case is None:
            return {"left_out": True}
        try:
            return {"demand": case.demand(self.template, self.limits)}
        except (Rejected, RunnerFailure) as failure:
            return {"failure": str(failure)}


def lacks_memory(reply: dict[str, Any]) -> bool:
    """Whether a launch ended for want of memory, by an error that says so: who died has not said
    why, and may have been killed by the candidate."""
    verdict = reply.get("verdict") or reply.get("interrupted") or {}
    return any(
        one["rule"] in ("memory.device", "memory.exhausted")
        or (one["rule"] == "reference.raised" and says_out_of_memory(one["message"]))
        for one in verdict.get("findings", ())
    )


def contradicted(claim_us: float, span_us: float) -> Rejected:
    """A candidate whose own clock and the judge's contradict each other."""
    return Rejected(
        "reward_hack",
        "timing.reconciliation",
        f"it claims {claim_us:.0f} us for a batch that took {span_us:.0f} us until its outputs "
        "were there: work is put off until after its own clock stopped",
    )
