"""Tasks asked, answers judged: what evaluation, stage 2 and in part stage 3 have in common.

    prompts = [first_prompt(task, archive, device) for task in scorer.usable(tasks)]
    asked = judged(prompts, rollouts, scorer, n=8, settings=Sampling(), seed=0)
    asked.groups[0].outcomes

The question is the product's first of a problem: its code, where its time goes, and no variant but
the original.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudal1_ci.optimize.llm_loop import known_profile
from cudal1_ci.propose.llm.prompt import render
from cudal1_ci.records import Device, content_hash
from cudal1_ci.records.archive import Archive
from model_training.collection import PROMPT_TOKENS, original, question
from model_training.environment import Outcome
from model_training.measures import Judged
from model_training.rollouts import Completion, Rollouts, Sampling
from model_training.scoring import Scorer
from model_training.stream import Prompt
from model_training.tasks.record import Task


@dataclass(frozen=True, kw_only=True)
class Group:
    """A prompt, the answers to it, and what each is worth."""

    prompt: Prompt
    completions: Sequence[Completion]
    outcomes: Sequence[Outcome]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Groups, and what they took."""

    groups: list[Group]
    generate_s: float
    score_s: float
    rehearse_s: float
    """Of those in which they were judged, until the last rehearsal was over."""

    @property
    def numbers(self) -> dict[str, float]:
        """For the metrics of a run; a server does not say how many tokens it wrote."""
        answers = [one for group in self.groups for one in group.completions]
        num_tokens = sum(len(one.token_ids) for one in answers)
        outcomes = [one for group in self.groups for one in group.outcomes]
        return {
            "rehearsed": sum(one.was_rehearsed for one in outcomes) / len(outcomes),
            "generate_s": self.generate_s,
            "score_s": self.score_s,
            "rehearse_s": self.rehearse_s,
            "tokens_per_s": num_tokens / self.generate_s,
        }


def first_prompt(
    task: Task, archive: Archive, device: Device, prompt_tokens: int = PROMPT_TOKENS
) -> Prompt:
    """What the product would ask of a task of which nothing is known."""
    problem = task.problem
    profile = known_profile(problem, archive, device)
    asked = question(problem, device, profile, (original(problem),))
    return Prompt(
        task=task,
        messages=tuple(render(asked, prompt_tokens)),
        exemplar_ids=(),
        cursor=0,
        published=0.0,
    )


def judged(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    scorer: Scorer,
    n: int,
    settings: Sampling,
    seed: int,
) -> Asked:
    """All answers are sampled before the first is judged."""
    started_s = time.monotonic()
    sampled = rollouts.sample([one.messages for one in prompts], n, settings, seed)
    sampled_s = time.monotonic()
    asked = [
        (prompt, answer.text, answer.is_cut)
        for prompt, some in zip(prompts, sampled, strict=True)
        for answer in some
    ]
    outcomes = iter(scorer.outcomes(asked))
    groups = [
        Group(prompt=prompt, completions=some, outcomes=[next(outcomes) for _ in some])
        for prompt, some in zip(prompts, sampled, strict=True)
    ]
    return Asked(
        groups=groups,
        generate_s=sampled_s - started_s,
        score_s=time.monotonic() - sampled_s,
        rehearse_s=scorer.rehearse_s,
    )


def sample_lines(
    stage: str, step: int, groups: Sequence[Group | Judged], seed: int
) -> list[dict[str, Any]]:
    """Judged samples as a run keeps them, the messages with the first of a group."""
    found = []
    for group in groups:
        said = [{"role": one.role, "content": one.content} for one in group.prompt.messages]
        asked: dict[str, Any] = {"messages": said}
        for answer, outcome in zip(group.completions, group.outcomes, strict=True):
            evaluation = outcome.evaluation
            line = {
                "stage": stage,
                "step": step,
                "task": group.prompt.task.name,
                "prompt_sha": content_hash(said),
                "exemplar_ids": list(group.prompt.exemplar_ids),
                "completion": answer.text,
                "status": outcome.sample.status,
                "speedup": outcome.sample.speedup,
                "reward": outcome.reward,
                "refused": outcome.refused,
                "is_known": outcome.is_known,
                "was_confirmed": outcome.was_confirmed,
                "was_rehearsed": outcome.was_rehearsed,
                "findings": [one.rule for one in evaluation.verdict.findings] if evaluation else [],
                "seed": seed,
            }
            found.append({**line, **asked})
            asked = {}
    return found
