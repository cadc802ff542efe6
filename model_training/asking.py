"""Sample answers and score them: what evaluation and stages 2 and 3 have in common.

prompts = [first_prompt(task, archive, device) for task in scorer.usable(tasks)]
asked = ask(prompts, rollouts, scorer, n=8, settings=Sampling(), seed=0)
asked.groups[0].outcomes
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
from model_training.environment import Outcome
from model_training.examples import PROMPT_TOKENS, original, question
from model_training.prompt_stream import Prompt
from model_training.rollouts import Completion, Rollouts, Sampling
from model_training.scoring import Scorer
from model_training.tasks.record import Task


@dataclass(frozen=True, kw_only=True)
class RolloutGroup:
    """Hold a prompt, its completions, and what each is worth."""

    prompt: Prompt
    completions: Sequence[Completion]
    outcomes: Sequence[Outcome]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Hold groups and the seconds that they took."""

    groups: list[RolloutGroup]
    generate_s: float
    score_s: float
    prefilter_s: float
    """Part of `score_s` until the last program was tried on the CPU."""

    @property
    def numbers(self) -> dict[str, float]:
        """Return what a run logs; a server does not say how many tokens it wrote."""
        answers = [one for group in self.groups for one in group.completions]
        outcomes = [one for group in self.groups for one in group.outcomes]
        return {
            "prefiltered": sum(one.was_prefiltered for one in outcomes) / len(outcomes),
            "generate_s": self.generate_s,
            "score_s": self.score_s,
            "prefilter_s": self.prefilter_s,
            "tokens_per_s": sum(len(one.token_ids) for one in answers) / self.generate_s,
        }


def first_prompt(task: Task, archive: Archive, device: Device) -> Prompt:
    """Return the product's first question of a problem: no variant but the original."""
    problem = task.problem
    profile = known_profile(problem, archive, device)
    asked = question(problem, device, profile, (original(problem),))
    return Prompt(
        task=task,
        messages=tuple(render(asked, PROMPT_TOKENS)),
        exemplar_ids=(),
        cursor=0,
        published=0.0,
    )


def ask(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    scorer: Scorer,
    n: int,
    settings: Sampling,
    seed: int,
) -> Asked:
    """Sample all answers, then score them."""
    started_s = time.monotonic()
    sampled = rollouts.sample([one.messages for one in prompts], n, settings, seed)
    sampled_s = time.monotonic()
    answered = [
        (prompt, answer.text, answer.is_cut)
        for prompt, some in zip(prompts, sampled, strict=True)
        for answer in some
    ]
    outcomes = iter(scorer.outcomes(answered))
    groups = [
        RolloutGroup(prompt=prompt, completions=some, outcomes=[next(outcomes) for _ in some])
        for prompt, some in zip(prompts, sampled, strict=True)
    ]
    return Asked(
        groups=groups,
        generate_s=sampled_s - started_s,
        score_s=time.monotonic() - sampled_s,
        prefilter_s=scorer.prefilter_s,
    )


def sample_lines(
    stage: str, step: int, groups: Sequence[RolloutGroup], seed: int
) -> list[dict[str, Any]]:
    """Return verified samples as a run keeps them, the messages with the first of a group."""
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
                "was_prefiltered": outcome.was_prefiltered,
                "findings": [one.rule for one in evaluation.verdict.findings] if evaluation else [],
                "seed": seed,
            }
            found.append({**line, **asked})
            asked = {}
    return found
