"""The playbook: deterministic rewrites of source, useful with no model and no GPU.

A proposer like any other: it states what it found and why it should be faster, and nothing it says
is believed until the judge has passed it. In the first round every rewrite that matches is a
candidate of its own, and all of them together are one more; in later rounds those that passed and
gained are combined, with each other and with the best that a model wrote. Rewrites are listed in
`table.py`; docs/playbook.md is drawn from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import libcst as cst
import msgspec

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose import launch_config
from cudal1_ci.propose.rewrites.rewrite import Edit, Rewrite, Site, defined_in, names_of
from cudal1_ci.propose.rewrites.table import NEED_TRITON, REWRITES
from cudal1_ci.propose.rewrites.terms import code
from cudal1_ci.propose.rewrites.unused_imports import without_unused
from cudal1_ci.propose.rewrites.width import within_width
from cudal1_ci.propose.target_file import (
    file_of,
    file_text,
    find,
    locate,
    parsed,
    with_file,
    with_text,
)
from cudal1_ci.records import Candidate, Exemplar, Problem, Record, TextProgram
from cudal1_ci.stats import speedups

PREFIX = "playbook:"
WORTH_COMBINING = 1.0
"""Score above which a rewrite that passed is combined with others."""


class PlaybookConfig(Record, frozen=True, kw_only=True):
    """What the playbook may propose."""

    skip: tuple[str, ...] = ()
    """Names of rewrites or families to leave out."""
    compile: bool = False
    """Whether to propose `torch.compile`: it costs seconds at the first call of every process."""
    cuda_graph: bool = False
    """Whether to propose CUDA graphs for modules that are called for inference: each form of the
    inputs has memory of its own, and only a GPU can judge them."""
    triton: bool = False
    """Whether to propose kernels in Triton, which the file has to keep."""

    def __post_init__(self) -> None:
        known = {name for one in REWRITES for name in (one.name, one.family)}
        known |= {launch_config.NAME, launch_config.FAMILY}
        for name in self.skip:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
                mend = f"did you mean `{near[0]}`?" if near else "docs/playbook.md lists them"
                raise ConfigError(
                    f"playbook.skip: expected names of rewrites or families, got {name!r}; {mend}"
                )


class Playbook:
    """Proposer of the rewrites in the table."""

    def __init__(
        self,
        config: PlaybookConfig | None = None,
        rewrites: Sequence[Rewrite] = REWRITES,
        *,
        min_share: float = 0.0,
    ):
        """Of a target that takes less than `min_share` (0..1) of the traced time its own lines are
        left as they are."""
        self.config = config or PlaybookConfig()
        self.min_share = min_share
        left_out = {*self.config.skip}
        left_out |= set() if self.config.compile else {"compile"}
        left_out |= set() if self.config.cuda_graph else {"cuda_graph"}
        left_out |= set() if self.config.triton else NEED_TRITON
        self.rewrites = [one for one in rewrites if not {one.name, one.family} & left_out]
        self.launches = not {launch_config.NAME, launch_config.FAMILY} & left_out

    def propose(self, problem: Problem, exemplars: Sequence[Exemplar], n: int) -> list[Candidate]:
        """Rewritten programs, single rewrites before combinations. For a kernel other numbers in
        its launches alone: what launches it is a target of its own, and rewritten there."""
        is_negligible = speedups.is_negligible(problem, self.min_share)
        if problem.target is not None and problem.target.is_kernel:
            is_tried = self.launches and not is_negligible
            others = launch_config.launch_candidates(problem, exemplars, n) if is_tried else []
            return [msgspec.structs.replace(c, proposer=PREFIX + c.proposer) for c in others]
        located = locate(problem.reference)
        if located is None:
            return []
        text, qualname = located
        if exemplars:
            return self.combined(problem, text, qualname, exemplars)[:n]
        singles = [
            (applied, (one,))
            for one in self.rewrites
            if (one.is_of_program or not is_negligible)
            and (applied := self.applied(problem, text, qualname, [one])) is not None
        ]
        candidates = [
            self.candidate(problem, text, new, found, used) for (new, found), used in singles
        ]
        if len(singles) > 1:
            matching = [one for _, (one,) in singles]
            both = self.applied(problem, text, qualname, matching)
            if both is not None:
                new, found = both
                candidates.append(self.candidate(problem, text, new, found, matching))
        return unique(candidates)[:n]

    def combined(
        self, problem: Problem, text: str, qualname: str, exemplars: Sequence[Exemplar]
    ) -> list[Candidate]:
        """What passed and gained by itself, together: all of it, and the best two. The same in the
        best program of somebody else."""
        gained: list[Rewrite] = []
        for exemplar in exemplars:
            names = rewrite_names(exemplar.candidate.proposer)
            if exemplar.score > WORTH_COMBINING and len(names) == 1:
                gained += [one for one in self.rewrites if one.name == names[0]]
        shown = {exemplar.candidate.id for exemplar in exemplars}
        candidates = []
        for chosen in (gained, gained[:2]):
            if len(chosen) > 1:
                in_order = [one for one in self.rewrites if one in chosen]
                applied = self.applied(problem, text, qualname, in_order)
                if applied is not None:
                    candidates.append(self.candidate(problem, text, *applied, in_order))
        candidates += self.on_top(problem, gained, exemplars)
        return [one for one in unique(candidates) if one.id not in shown]

    def on_top(
        self, problem: Problem, gained: Sequence[Rewrite], exemplars: Sequence[Exemplar]
    ) -> Iterator[Candidate]:
        """The fastest program that is not the playbook's, with what gained in the reference and is
        to be found in it too: all of that, and what is of the whole program alone."""
        others = [one for one in exemplars if not rewrite_names(one.candidate.proposer)]
        best = max(others, key=lambda one: one.score, default=None)
        located = locate(best.candidate.program) if best is not None else None
        if best is None or best.score <= WORTH_COMBINING or located is None:
            return
        text, qualname = located
        whole = [one for one in gained if one.is_of_program]
        for chosen in (gained, whole):
            in_order = [one for one in self.rewrites if one in chosen]
            applied = self.applied(problem, text, qualname, in_order)
            if applied is not None:
                names = {line.partition(":")[0] for line in applied[1]}
                done = [one for one in in_order if one.name in names]
                yield added(best.candidate, applied[0], done)

    def applied(
        self, problem: Problem, text: str, qualname: str, rewrites: Iterable[Rewrite]
    ) -> tuple[str, list[str]] | None:
        """The file's text after the rewrites, each on the result of the one before, and what they
        found; None when nothing changed."""
        module = original = parsed(text)
        if module is None or original is None:
            return None
        found: list[str] = []
        definitions = ""
        for one in rewrites:
            for name in [qualname] if one.is_of_program else parts(problem, module, qualname):
                if find(module, name) is None:
                    return None
                site = Site(module, name, names_of(module, name), problem.workloads)
                edit = one.apply(site)
                if edit is not None:
                    module = edited(module, edit)
                    definitions += edit.definitions
                    found += [f"{one.name}: {line}" for line in edit.found]
        if not found or module.code == text:
            return None
        module = without_unused(original, module, *place_of(problem))
        return within_width(text, module.code, definitions), found

    def candidate(
        self,
        problem: Problem,
        original: str,
        text: str,
        found: list[str],
        rewrites: Sequence[Rewrite],
    ) -> Candidate:
        """A candidate with its reasons."""
        why = "\n".join(f"- {one.why}" for one in rewrites)
        listed = "\n".join(f"- {line}" for line in found)
        return Candidate(
            problem_id=problem.id,
            program=with_text(problem, original, text),
            proposer=PREFIX + "+".join(one.name for one in rewrites),
            analysis=f"{why}\n\nFound:\n{listed}",
            design="\n".join(f"- {one.name}: {one.precondition}" for one in rewrites),
            techniques=tuple(dict.fromkeys(one.family for one in rewrites)),
        )


def added(candidate: Candidate, text: str, rewrites: Sequence[Rewrite]) -> Candidate:
    """Somebody's candidate with another text, which has these rewrites in it."""
    program = candidate.program
    names = "+".join(one.name for one in rewrites)
    if isinstance(program, TextProgram):
        program = msgspec.structs.replace(program, source=text)
    else:
        path = file_of(program)
        assert path is not None, "its text was read"
        original = file_text(msgspec.structs.replace(program, overlay=()), path)
        assert original is not None, "it imports it"
        program = with_file(program, path, original, text)
    return msgspec.structs.replace(
        candidate,
        program=program,
        proposer=f"{candidate.proposer}+{names}",
        techniques=tuple(dict.fromkeys((*candidate.techniques, *(one.family for one in rewrites)))),
        exemplar_ids=(*candidate.exemplar_ids, candidate.id),
    )


def place_of(problem: Problem) -> tuple[Path, Path] | tuple[None, None]:
    """The target's file and its checkout; of a text there are none."""
    program = problem.reference
    path = None if isinstance(program, TextProgram) else file_of(program)
    if path is None or isinstance(program, TextProgram):
        return None, None
    return Path(program.root) / path, Path(program.root)


def parts(problem: Problem, module: cst.Module, qualname: str) -> list[str]:
    """The definitions that a rewrite may change: the target, and of a text that is a whole program
    its other modules. (In a checkout each of them is a target of its own.)"""
    if not isinstance(problem.reference, TextProgram) or problem.target is not None:
        return [qualname]
    others = [
        item.name.value
        for item in module.body
        if isinstance(item, cst.ClassDef) and any("Module" in code(base) for base in item.bases)
    ]
    return list(dict.fromkeys([qualname, *others]))


def rewrite_names(proposer: str) -> list[str]:
    """`["sdpa", "repeat_to_expand"]` of `playbook:sdpa+repeat_to_expand`; empty for others."""
    return proposer.removeprefix(PREFIX).split("+") if proposer.startswith(PREFIX) else []


def unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first of those with the same program."""
    return list({candidate.id: candidate for candidate in reversed(list(candidates))}.values())[
        ::-1
    ]


class Replace(cst.CSTTransformer):
    """Swaps functions of one definition."""

    def __init__(self, edit: Edit):
        self.edit = edit

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        new = self.edit.functions.get(original_node, updated_node)
        added = self.edit.methods.get(original_node, ())
        return cst.FlattenSentinel([new, *added]) if added else new


def edited(module: cst.Module, edit: Edit) -> cst.Module:
    """The file with the edit's functions, and the imports that they need."""
    changed = module.visit(Replace(edit))
    missing = sorted(m for m in edit.modules if not imports_module(changed, m))
    return with_definitions(with_imports(changed, missing), edit.definitions)


def imports_module(module: cst.Module, wanted: str) -> bool:
    """Whether a file has `torch`, or `triton.language as tl`, under that name."""
    dotted, _, name = wanted.partition(" as ")
    return names_of(module, "").imports.get(name or dotted) == dotted


def with_imports(module: cst.Module, missing: Sequence[str]) -> cst.Module:
    """The file with `import x` lines before its first import (or definition)."""
    if not missing:
        return module
    lines = [
        cst.ensure_type(cst.parse_statement(f"import {name}"), cst.SimpleStatementLine)
        for name in missing
    ]
    body = list(module.body)
    place = next((i for i, line in enumerate(body) if is_plain_import(line)), None)
    if place is None:
        place = 1 if body and is_docstring(body[0]) else 0
        while place < len(body) and code(body[place]).strip().startswith("from __future__"):
            place += 1
    first = body[place] if place < len(body) else None
    if first is not None and isinstance(first, cst.SimpleStatementLine):
        lines[0] = lines[0].with_changes(leading_lines=first.leading_lines)
        body[place] = first.with_changes(leading_lines=[])
    return module.with_changes(body=[*body[:place], *lines, *body[place:]])


def with_definitions(module: cst.Module, text: str) -> cst.Module:
    """The file with definitions before its first one, but for those that it has."""
    there = defined_in(module)
    new = cst.parse_module(text, config=module.config_for_parsing)
    made = [
        one for one in new.body if getattr(getattr(one, "name", None), "value", "") not in there
    ]
    if not made:
        return module
    kinds = cst.ClassDef | cst.FunctionDef
    body = list(module.body)
    place = next((i for i, line in enumerate(body) if isinstance(line, kinds)), None)
    if place is None:  # they stand under an `if`
        return module.with_changes(body=[*body, *made])
    apart = [cst.EmptyLine(indent=False)] * 2
    added = [made[0].with_changes(leading_lines=apart), *made[1:]]
    following = body[place]
    lines = [line for line in following.leading_lines if line.comment is not None]
    body[place] = following.with_changes(leading_lines=[*apart, *lines])
    return module.with_changes(body=[*body[:place], *added, *body[place:]])


def is_plain_import(line: cst.CSTNode) -> bool:
    text = code(line).strip()
    return text.startswith(("import ", "from ")) and not text.startswith("from __future__")


def is_docstring(line: cst.CSTNode) -> bool:
    return (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Expr)
        and isinstance(line.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )
