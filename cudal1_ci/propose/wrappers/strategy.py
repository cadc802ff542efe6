"""Propose wrappers of the reference, and of faster programs."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cudal1_ci.propose.apply import apply, operators_of
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.editing.rewrite import Rewrite
from cudal1_ci.propose.wrappers.table import (
    CHANNELS_LAST,
    COMPILATIONS,
    COMPILE,
    COMPILE_AS_LAID_OUT,
    COMPILE_IN_INFERENCE,
    COMPILED_REGION,
    CUDNN,
    GRAPHS,
    MAX_AUTOTUNE,
    REDUCE_OVERHEAD,
    TRAINING_GRAPH,
    WRAPPERS,
)
from cudal1_ci.records import Candidate, Evaluation, Kernel, Problem
from cudal1_ci.records.recording import Recording
from cudal1_ci.stats import speedups

MAX_COMBINATIONS = 4
"""The most wrapped faster programs for one problem, counted separately for programs by a model."""
MAX_PROGRAMS = 2
MOST_TRACED = 1000
"""Operations of a call, beyond which it is not compiled as a whole: the compiler unrolls loops, and
takes minutes for so many."""
FASTER = 1.04
"""Least estimated speedup of a program to wrap; the program alone need not be significantly
faster."""
LESS_PRECISE = ("precision", "incorrect_values")
HOST = "host synchronization"
"""Family of the edits that take out what no CUDA graph can hold."""
JOINED = "gradients.joined"
"""Rule against gradients in the same memory, which the compiler makes whatever the layout."""

Operators = tuple[str, ...]
Found = Mapping[Operators, Evaluation]
BY_NAME = {one.name: one for one in WRAPPERS}
COMPILE_NAMES = frozenset(one.name for one in COMPILATIONS)
GRAPH_NAMES = frozenset(one.name for one in GRAPHS)
LAYOUTS = frozenset(one.name for one in (CHANNELS_LAST, CUDNN))


class Wrappers:
    """Propose wrappers of the reference, and of faster programs."""

    name = "wrappers"

    def __init__(
        self,
        config: PlaybookConfig | None = None,
        *,
        kind: str = "cpu",
        only: Sequence[str] | None = None,
        combines: bool = True,
    ):
        """Choose wrappers for a `kind` of device, or `only` these, by name. If it does not
        combine, only the reference is wrapped.
        """
        self.wrappers = allowed(config or PlaybookConfig(), kind, only)
        self.combines = combines

    def propose(
        self, problem: Problem, evaluations: Sequence[Evaluation], n: int
    ) -> list[Candidate]:
        """Return wrapped programs, those of the reference first."""
        if problem.target is not None and problem.target.is_kernel:
            return []
        found = {
            operators: one for one in evaluations if (operators := operators_of(one.candidate))
        }
        known = {one.candidate.id for one in evaluations}
        of_reference = (
            apply(problem, None, [BY_NAME[name] for name in names])
            for names in self.of_the_reference(problem, found)
        )
        chosen = [one for one in of_reference if one is not None and one.id not in known]
        if self.combines:
            held = [one for one in self.held(problem, evaluations, found) if one.id not in known]
            # Without more of the reference it is known which wrappers gain on this problem.
            chosen = [*held, *chosen] or list(self.combinations(problem, evaluations, found))
        return list({one.id: one for one in chosen}.values())[:n]

    def propose_recorded(
        self,
        problem: Problem,
        recording: Recording,
        evaluations: Sequence[Evaluation],
        n: int,
    ) -> list[Candidate]:
        """Return the same, without compilation as a whole where that would take minutes."""
        found = self.propose(problem, evaluations, n)
        if len(recording.operations) <= MOST_TRACED:
            return found
        return [one for one in found if not may_take_minutes(one)]

    def of_the_reference(self, problem: Problem, found: Found) -> Iterator[Operators]:
        """Yield wrappers of the reference by name: alone first, together if each passed."""
        left = (COMPILE_AS_LAID_OUT, COMPILE_IN_INFERENCE, *GRAPHS)
        alone = [one.name for one in self.wrappers if one not in left]
        graphs = tuple(one.name for one in GRAPHS if one in self.wrappers)
        waits = self.combines and compiles_in_graphs(problem, found, graphs)
        first = [name for name in alone if not (waits and name == COMPILE.name)]
        yield from ((name,) for name in first if name not in LAYOUTS)
        if graphs:
            yield graphs
        if not self.combines:
            return
        graph = graphs_that_pass(problem, found)
        if any({*names} & {*graphs} for names in found) and graph != graphs:
            yield graphs[-1:]
        in_graph = (COMPILE.name, *graph)
        compiled = found.get((COMPILE.name,)) or found.get(in_graph)
        # Graphs copy gradients, so that none lies in another's memory.
        separates = TRAINING_GRAPH.name in graph and is_joined(compiled)
        for one in self.wrappers:
            at_once = one == COMPILE and (waits or separates)
            if (
                one in (COMPILE, MAX_AUTOTUNE)
                and graph
                and (at_once or is_usable((one.name,), found))
            ):
                yield one.name, *graph
        repair = self.repair_of_compile(compiled, found)
        if repair and not (separates and (in_graph not in found or is_usable(in_graph, found))):
            # If a call keeps the device busy, a graph gains nothing by itself.
            gains = graph and speedups.estimate(found[graph]) > 1
            yield (repair.name, *graph) if gains else (repair.name,)
        layouts = [name for name in alone if name in LAYOUTS]
        is_imprecise = is_known_to_be_less_precise("channels_last", found)
        if is_imprecise:
            layouts = [name for name in layouts if name != CHANNELS_LAST.name]
        yield from ((name,) for name in layouts)
        if len(layouts) > 1:
            yield tuple(layouts)

    def repair_of_compile(self, compiled: Evaluation | None, found: Found) -> Rewrite | None:
        """Return the way to compile that may be right where the usual one is wrong."""
        if compiled is None or compiled.verdict.status not in LESS_PRECISE:
            return None
        wrong = {names[0] for names, one in found.items() if one.verdict.status in LESS_PRECISE}
        repairs = (COMPILE_AS_LAID_OUT, COMPILE_IN_INFERENCE)[is_joined(compiled) :]
        possible = (one for one in repairs if one in self.wrappers and one.name not in wrong)
        return next(possible, None)

    def held(
        self, problem: Problem, evaluations: Sequence[Evaluation], found: Found
    ) -> Iterator[Candidate]:
        """Yield a program in the graphs that could not hold the reference, where an edit took out
        why: a wait for the GPU, or a copy from the CPU."""
        failed = [names for names, one in found.items() if {*names} <= GRAPH_NAMES and fails(one)]
        for one in may_be_recorded(evaluations)[:1] if failed else ():
            graphs = max(failed, key=len)
            candidate = apply(problem, one.candidate, [BY_NAME[name] for name in graphs])
            if candidate is not None:
                yield candidate

    def combinations(
        self, problem: Problem, evaluations: Sequence[Evaluation], found: Found
    ) -> Iterator[Candidate]:
        """Yield faster programs, wrapped, the most promising first."""
        programs = faster(evaluations)[:MAX_PROGRAMS]
        if any(GRAPH_NAMES & {*names} and fails(one) for names, one in found.items()):
            programs += [one for one in may_be_recorded(evaluations) if one not in programs][:1]
        wrappers = self.promising(found)
        pairs = [(a, b) for a in range(len(programs)) for b in range(len(wrappers))]
        made = Counter(is_written(one) for one in evaluations if is_combination(one.candidate))
        known = {one.candidate.id for one in evaluations}
        for a, b in sorted(pairs, key=lambda pair: (sum(pair), pair)):
            if made[is_written(programs[a])] == MAX_COMBINATIONS:
                continue
            if has_region(programs[a].candidate) and COMPILE_NAMES & {*wrappers[b]}:
                continue  # it is compiled where that gains
            candidate = apply(problem, programs[a].candidate, [BY_NAME[n] for n in wrappers[b]])
            if candidate is not None and candidate.id not in known:
                made[is_written(programs[a])] += 1
                yield candidate

    def promising(self, found: Found) -> list[Operators]:
        """Return the wrappers that were tried on the reference, best first, without
        significantly slower ones. What takes too long to compile does so around a rewrite too; an
        error may be gone.
        """
        names = {one.name for one in self.wrappers} - LAYOUTS
        usable = {
            operators: one
            for operators, one in found.items()
            if names.issuperset(operators)
            and not is_slower(one)
            and one.verdict.status not in ("timeout", "inconclusive")
        }
        return sorted(usable, key=lambda operators: -speedups.score(usable[operators]))


def allowed(config: PlaybookConfig, kind: str, only: Sequence[str] | None) -> list[Rewrite]:
    """Return the wrappers that suit a kind of device and are enabled in the configuration."""
    on_gpu = kind == "cuda"
    graphs = on_gpu if config.cuda_graph is None else config.cuda_graph
    left_out = {*config.skip}
    if not compiles(config, kind):
        left_out |= {one.name for one in COMPILATIONS}
    if not graphs:
        left_out |= {REDUCE_OVERHEAD.name, *GRAPH_NAMES}
    if not on_gpu:
        left_out |= {CHANNELS_LAST.name, CUDNN.name, COMPILE_AS_LAID_OUT.name}
    if only is None:
        # The proposed graph also copies its outputs, with fewer launches around them.
        left_out.add(REDUCE_OVERHEAD.name)
        left_out |= set() if config.max_autotune else {MAX_AUTOTUNE.name}
    return [
        one
        for one in WRAPPERS
        if not {one.name, one.family} & left_out and (only is None or one.name in only)
    ]


def has_region(candidate: Candidate) -> bool:
    """Return whether parts of a program are compiled."""
    return any(one.operator == COMPILED_REGION for one in candidate.edits)


def may_take_minutes(candidate: Candidate) -> bool:
    """Return whether a candidate compiles a call as a whole."""
    return not {one.name for one in COMPILATIONS}.isdisjoint(operators_of(candidate))


def compiles(config: PlaybookConfig, kind: str) -> bool:
    """Return whether torch.compile may be proposed for a `kind` of device."""
    suits = kind == "cuda" or has_cpp_compiler()
    return suits if config.compile is None else config.compile


def has_cpp_compiler() -> bool:
    """Return whether torch.compile can build code for the CPU here."""
    names = (os.environ.get("CXX", ""), "g++", "clang++")
    return any(name and shutil.which(name) for name in names)


def is_known_to_be_less_precise(operator: str, found: Found) -> bool:
    """Return whether a rewrite was refused for its precision."""
    one = found.get((operator,))
    return one is not None and one.verdict.status == "precision"


def compiles_in_graphs(problem: Problem, found: Found, graphs: Operators) -> bool:
    """Return whether compilation waits for what graphs gain, or goes into them at once, as they
    gain. Compiling a call that trains takes longest. Nothing waits where there is one workload: its
    recording shows whether a graph can hold it, and graphs may never be tried."""
    trains = any(one.mode != "infer" for one in problem.workloads)
    if not (graphs and trains and len(problem.workloads) > 1) or (COMPILE.name,) in found:
        return False
    if apply(problem, None, [BY_NAME[name] for name in graphs]) is None:
        return False
    if graph := graphs_that_pass(problem, found):
        return any(map(speedups.is_gain, found[graph].measurements))
    return not {graphs, graphs[-1:]} <= found.keys()


def is_joined(compiled: Evaluation | None) -> bool:
    """Return whether the compiled reference made gradients that lie in each other's memory."""
    return compiled is not None and JOINED in {one.rule for one in compiled.verdict.findings}


def graphs_that_pass(problem: Problem, found: Found) -> Operators:
    """Return the graphs of the reference to record other programs in too: of training if that
    gains, else of inference alone; none where none passed."""
    kinds = [names for names in found if GRAPH_NAMES.issuperset(names) and is_usable(names, found)]
    trained = {one.name for one in problem.workloads if one.mode != "infer"}
    for names in sorted(kinds, key=len, reverse=True):
        measured = found[names].measurements
        gains = any(one.workload in trained and speedups.is_gain(one) for one in measured)
        if TRAINING_GRAPH.name not in names or gains:
            return names
    return ()


def is_usable(operators: Operators, found: Found) -> bool:
    """Return whether a wrapper passed on the reference. A compiled program may be slow because
    of checks before each call; a graph omits them.
    """
    one = found.get(operators)
    if one is None or speedups.score(one) <= 0:
        return False
    return not GRAPH_NAMES.issuperset(operators) or not is_slower(one)


def is_slower(evaluation: Evaluation) -> bool:
    """Return whether a program was significantly slower on a workload."""
    return any(map(speedups.is_slower, evaluation.measurements))


def is_written(evaluation: Evaluation) -> bool:
    """Return whether a model wrote the program."""
    return evaluation.candidate.generation is not None


def is_combination(candidate: Candidate) -> bool:
    """Return whether a program other than the reference was wrapped."""
    kinds = [one.operator in BY_NAME and one.operator not in LAYOUTS for one in candidate.edits]
    return any(kinds) and (candidate.generation is not None or not all(kinds))


def faster(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the faster programs that are not wrapped yet, best first."""
    wrapped = {one.name for one in WRAPPERS} - LAYOUTS
    found = [
        one
        for one in evaluations
        if speedups.estimate(one) > FASTER
        and not is_slower(one)
        and not any(edit.operator in wrapped for edit in one.candidate.edits)
        and (one.candidate.edits or one.candidate.generation is not None)
        # A maintainer merges no unused kernel; a candidate without it gains too.
        and launches_its_own(one.kernels) is not False
    ]
    return sorted(found, key=lambda one: -speedups.score(one))


def fails(evaluation: Evaluation) -> bool:
    """Return whether a program raised an error."""
    return evaluation.verdict.status == "runtime_error"


def may_be_recorded(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return programs that no longer wait for the GPU or copy from the CPU, however little they
    gain by that: a graph may hold them."""
    return [
        one
        for one in evaluations
        if {edit.technique for edit in one.candidate.edits} == {HOST}
        and speedups.score(one) > 0
        and not is_slower(one)
    ]


def launches_its_own(kernels: Sequence[Kernel]) -> bool | None:
    """Return whether a program launches its own kernel, by what a call showed; None where no call
    was profiled, because the program has no kernel.
    """
    return any(one.is_own for one in kernels) if kernels else None
