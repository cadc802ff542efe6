"""What `best` proposes by itself: finds of the other columns, together.

First the reference: compiled and as a CUDA graph, where each passed alone (the compiler's kernels
without what it asks before each call); where it was less precise compiled and has convolutions,
compiled with these in the order in which they are, as a graph too if that was faster alone; and on
a GPU its convolutions in channels-last order, unless the playbook has tried that and it was less
precise, by the algorithm that cuDNN finds fastest, and both. Then a rewrite of the playbook or of a
model that was faster, or one of those three layers, wrapped as the columns wrap the reference:
fewer kernels, and one launch for all of them, are two gains, and the first is small beside the
launches that the second takes away. Programs and wrappers are ranked by what they gained on this
very task, so that a few candidates are enough. A wrapper that was slower beyond doubt is left out,
and a program that launches none of the kernels that it brings along; a wrapper that failed comes
last, as a rewrite may change what it failed on. Where nothing was faster, nothing is wrapped.
Candidates are judged like all others, and are the column's own trials.

    best:compile+cuda-graph
    best:playbook:diagonal_product+cuda-graph
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudal1_ci.propose.llm.splice.names import renamed
from cudal1_ci.propose.llm.splice.text_form import ENTRY
from cudal1_ci.propose.target_file import parsed
from cudal1_ci.records import Candidate, Evaluation, Problem, TextProgram
from cudal1_ci.report_card.solvers import BEST, CONTRASTIVE, candidate, text_of
from cudal1_ci.report_card.worth import launches_its_own
from cudal1_ci.report_card.wrapped import AS_LAID_OUT, IN_A_GRAPH, LAYERS, WRAPPERS, Wrapper
from cudal1_ci.stats import speedups

PREFIX = f"{BEST}:"
REWRITES = ("playbook", CONTRASTIVE)
"""Columns whose finds are wrapped."""
WRITTEN = "Written"
"""What a model's class is called below a wrapper, which is `ModelNew` itself."""
CONVOLUTION = re.compile(r"\bConv(Transpose)?[23]d\b")
MOST = 4
"""Programs that were faster, wrapped, for one task."""
FASTER = 1.04
"""By the estimate: a program to wrap need not be a gain beyond doubt by itself."""
MOST_PROGRAMS = 2
ALL_WRAPPERS = WRAPPERS | IN_A_GRAPH | AS_LAID_OUT

Found = Mapping[str, Sequence[Evaluation]]
"""By column, what was judged so far; of `best` itself too."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that was faster, to be wrapped."""

    evaluation: Evaluation
    text: str
    base: str
    """The class in it that is wrapped."""


def rounds(problem: Problem, found: Found, kind: str) -> Iterator[list[Candidate]]:
    """Candidates of a first round, and those of a second one by what is found by then."""
    yield fresh(whole(problem, found, kind), found)
    yield fresh(combinations(problem, found), found)[:MOST]


def fresh(made: Iterable[Candidate], found: Found) -> list[Candidate]:
    """Each once, and none that was judged."""
    known = {one.candidate.id for column in found.values() for one in column}
    return list({one.id: one for one in made if one.id not in known}.values())


def whole(problem: Problem, found: Found, kind: str) -> list[Candidate]:
    """The reference as a whole, in ways that are no column; on a GPU alone."""
    text = text_of(problem)
    if kind != "cuda":
        return []
    has_convolutions = CONVOLUTION.search(text) is not None
    made = [
        candidate(problem, wrapper.wrap(text), f"{PREFIX}{name}", *wrapper.techniques)
        for name, wrapper in graphs_for(found, has_convolutions)
    ]
    if has_convolutions:
        made += [
            candidate(problem, layer.lay(text), f"{PREFIX}{name}", layer.technique)
            for name, layer in LAYERS.items()
            if not is_known_to_be_less_precise(name, found)
        ]
    return made


def graphs_for(found: Found, has_convolutions: bool) -> Iterator[tuple[str, Wrapper]]:
    """Ways to compile and to record, by what came of each alone."""

    def passes(column: str) -> bool:
        return any(is_usable(column, one) for one in found.get(column, ()))

    for name, wrapper in IN_A_GRAPH.items():
        if all(map(passes, name.split("+"))):
            yield name, wrapper
    statuses = {one.verdict.status for one in found.get("compile", ())}
    if has_convolutions and not statuses.isdisjoint(("precision", "incorrect_values")):
        # Where the device has much to do a call, a graph has nothing to gain by itself.
        gains = any(speedups.estimate(one) > 1 for one in found.get("cuda-graph", ()))
        name = "compile-as-laid-out+cuda-graph" if gains else "compile-as-laid-out"
        yield name, AS_LAID_OUT[name]


def is_known_to_be_less_precise(layer: str, found: Found) -> bool:
    """Whether the playbook's rewrite that is its first part was refused for it."""
    rewrite = layer.partition("+")[0].replace("-", "_")
    return any(
        one.candidate.proposer == f"playbook:{rewrite}" and one.verdict.status == "precision"
        for one in found.get("playbook", ())
    )


def is_usable(column: str, evaluation: Evaluation) -> bool:
    """Whether it passed; what is compiled may be slow by what is asked before each call."""
    is_slow = is_slower(evaluation) and column == "cuda-graph"
    return speedups.score(evaluation) > 0 and not is_slow


def is_slower(evaluation: Evaluation) -> bool:
    return any(map(speedups.is_slower, evaluation.measurements))


def combinations(problem: Problem, found: Found) -> Iterator[Candidate]:
    """Programs that were faster, wrapped, the most promising first."""
    programs = faster(problem, found)[:MOST_PROGRAMS]
    wrappers = promising(found)
    pairs = [(a, b) for a in range(len(programs)) for b in range(len(wrappers))]
    for a, b in sorted(pairs, key=lambda pair: (sum(pair), pair)):
        yield together(problem, programs[a], wrappers[b])


def faster(problem: Problem, found: Found) -> list[Program]:
    """Rewrites, and the reference with another layer, that were faster, best first."""
    asked = [one for column in (*REWRITES, BEST) for one in found.get(column, ())]
    programs = [
        program
        for one in asked
        if speedups.estimate(one) > FASTER
        and not is_slower(one)
        # Nobody would merge what does not run; what gains beside it has a candidate without it.
        and launches_its_own(one.kernels) is not False
        and (program := to_wrap(problem, one)) is not None
    ]
    return sorted(programs, key=lambda one: -speedups.score(one.evaluation))


def to_wrap(problem: Problem, evaluation: Evaluation) -> Program | None:
    """A rewrite of the playbook as it is, one of a model and a layer as a class of another name;
    None for the others."""
    program, proposer = evaluation.candidate.program, evaluation.candidate.proposer
    layer = LAYERS.get(proposer.removeprefix(PREFIX))
    if layer is not None:
        text = layer.lay(text_of(problem), name=layer.name)
        return Program(evaluation=evaluation, text=text, base=layer.name)
    if proposer.startswith(PREFIX) or not isinstance(program, TextProgram):
        return None
    if program.entry == ENTRY:
        module = parsed(program.source)
        below = renamed(module, ENTRY, WRITTEN) if module is not None else None
        if below is None:
            return None
        return Program(evaluation=evaluation, text=below.code, base=WRITTEN)
    if program.entry != "Model":
        return None
    return Program(evaluation=evaluation, text=program.source, base="Model")


def promising(found: Found) -> list[str]:
    """Names of the wrappers that were tried on the reference, best first."""
    tried = {
        name: found.get(name)
        or [one for one in found.get(BEST, ()) if one.candidate.proposer == PREFIX + name]
        for name in ALL_WRAPPERS
    }
    usable = [name for name, known in tried.items() if known and not all(map(is_slower, known))]
    return sorted(usable, key=lambda name: -max(map(speedups.score, tried[name])))


def together(problem: Problem, program: Program, name: str) -> Candidate:
    """A program that was faster, wrapped."""
    of, wrapper = program.evaluation.candidate, ALL_WRAPPERS[name]
    return candidate(
        problem,
        wrapper.wrap(program.text, base=program.base),
        f"{PREFIX}{of.proposer.removeprefix(PREFIX)}+{name}",
        *dict.fromkeys((*of.techniques, *wrapper.techniques)),
        analysis=of.analysis,
        design=of.design,
    )
