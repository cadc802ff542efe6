"""Decide what an answer is worth: read and verified as the product does it.

    outcome = Environment(judge, archive, policy, config).outcome(prompt, answer)
    outcome.sample, outcome.reward

- An answer without code, a copy of the reference and what did not pass get nothing; so does a copy
  of what the prompt shows where `pays_shown` is off.
- What is convicted of cheating gets nothing, becomes a case of the database of hacks, and is never
  an exemplar.
- A jump, a score above 3 or above twice the best that is known of the task, is verified again in
  new processes, on a second GPU of the same kind where there is one, as in the paper (section
  2.4.4); the lower of the two counts. The paper throws away what differs by more than a tenth, as
  most jumps of short programs did next to other verifiers (docs/training.md).
- A known verdict is not asked for again, and a new one is recorded before a reward is given, so
  that a run that was killed verifies nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ci.propose.llm.answer import Unusable, parse
from cudal1_ci.propose.llm.hack_review.cases import Case, Database, known_cases
from cudal1_ci.records import Candidate, Evaluation, Finding, Problem, Record, TextProgram
from cudal1_ci.records.archive import Archive
from cudal1_ci.stats import speedups
from model_training.answers import form_of, program_in
from model_training.examples import Verifier
from model_training.objective.reward import reward
from model_training.prompt_stream import POLICY, Prompt
from model_training.table import Sample

COPY, NO_CODE = "copy", "no_code"
SHOWN = "shown"
"""Why there is nothing to verify: the prompt shows it."""
COPIES = ("unchanged", SHOWN)
JUMP, RATIO = 3.0, 2.0
AGREE = 0.1
"""Of the scores of two measurements, how far the lower may be below the higher."""


class EnvironmentConfig(Record, frozen=True, kw_only=True):
    """Configure what is paid."""

    proposer: str = POLICY
    """Name of the weights, in the archive."""
    pays_shown: bool = True
    """Whether an answer that is an exemplar of its prompt, but for names and layout, is worth that
    one's speedup, as in the paper; else it is a copy, and worth nothing."""


class Outcome(Record, frozen=True, kw_only=True):
    """Hold what came of one answer."""

    sample: Sample
    reward: float
    evaluation: Evaluation | None = None
    refused: str | None = None
    """Why there was nothing to verify, in the product's word for it."""
    is_known: bool = False
    """Whether the verdict was there before."""
    was_confirmed: bool | None = None
    """Of a jump, whether the second measurement agreed; None where there was none."""
    was_prefiltered: bool = False
    """Whether the verdict is that of a verifier on the CPU, which settled it (`prefilter`)."""


@dataclass
class Environment:
    """Hold a verifier, and what it has found so far."""

    judge: Verifier
    archive: Archive
    policy: str
    """Hash of the verifier's settings."""
    config: EnvironmentConfig
    second: Verifier | None = None
    """Who measures jumps again; the same verifier where there is no other."""

    def outcome(self, prompt: Prompt, answer: str, *, is_cut: bool = False) -> Outcome:
        """Return what an answer to a prompt is worth."""
        problem = prompt.task.problem
        found = candidate_in(prompt, answer, self.config, is_cut=is_cut)
        if isinstance(found, str):
            status = COPY if found in COPIES else NO_CODE
            return Outcome(
                sample=Sample(task=prompt.task.name, status=status), reward=0.0, refused=found
            )
        key = self.judge.device().key
        known = self.archive.lookup(problem.id, found.id, key, self.policy)
        evaluation, was_confirmed = (known, None) if known else self._judged(problem, found)
        if known is None:
            self._keep(evaluation)
        passed = evaluation.verdict.status == "passed"
        return Outcome(
            sample=Sample(
                task=prompt.task.name,
                status=evaluation.verdict.status,
                speedup=speedups.score(evaluation) if passed else None,
            ),
            reward=reward(evaluation),
            evaluation=evaluation,
            is_known=known is not None,
            was_confirmed=was_confirmed,
        )

    def knows(self, candidate: Candidate) -> bool:
        """Return whether a verdict is there that need not be asked for."""
        key = self.judge.device().key
        found = self.archive.lookup(candidate.problem_id, candidate.id, key, self.policy)
        return found is not None

    def _judged(self, problem: Problem, candidate: Candidate) -> tuple[Evaluation, bool | None]:
        """Verify a candidate, a jump twice."""
        first = self.judge.evaluate(problem, candidate)
        best = speedups.highest(self.archive.passed(problem.id))
        if not is_jump(speedups.score(first), best):
            return first, None
        again = (self.second or self.judge).evaluate(problem, candidate)
        if again.verdict.status != "passed":
            return again, False
        return min(first, again, key=speedups.score), agree(
            speedups.score(first), speedups.score(again)
        )

    def _keep(self, evaluation: Evaluation) -> None:
        """Record in the archive, and a hack in the database of hacks too."""
        self.archive.record(evaluation, self.policy)
        program = evaluation.candidate.program
        if evaluation.verdict.status != "reward_hack" or not isinstance(program, TextProgram):
            return
        findings = evaluation.verdict.findings or (Finding(rule="unknown", message="unknown"),)
        case = Case(
            name=f"{self.config.proposer} {evaluation.candidate.id}",
            family=findings[0].rule,
            description=findings[0].message or findings[0].rule,
            code=program.source[:20_000],
        )
        Database(known_cases(), self.archive, since=0.0).add(program.source, case)


def candidate_in(
    prompt: Prompt, answer: str, config: EnvironmentConfig, *, is_cut: bool
) -> Candidate | str:
    """Return the candidate of an answer, as the product would read it, or a word for why there is
    none."""
    problem = prompt.task.problem
    read = parse(answer, is_cut=is_cut)
    if isinstance(read, Unusable):
        return read.kind
    assert isinstance(problem.reference, TextProgram)
    program = program_in(problem.reference, read.code)
    if isinstance(program, Unusable):
        return program.kind
    if not config.pays_shown and form_of(problem, read.code) in prompt.exemplar_forms:
        return SHOWN
    return Candidate(
        problem_id=problem.id,
        program=program,
        proposer=config.proposer,
        analysis=read.analysis,
        design=read.design,
        exemplar_ids=prompt.exemplar_ids,
    )


def is_jump(worth: float, best: float) -> bool:
    """Return whether a score is measured again before it is believed."""
    return worth > JUMP or worth > RATIO * best


def agree(one: float, other: float) -> bool:
    """Return whether two scores are of one speed."""
    return min(one, other) >= (1 - AGREE) * max(one, other)
