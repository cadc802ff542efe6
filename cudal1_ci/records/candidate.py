"""Describe a program that is meant to replace a reference, and who proposed it."""

from __future__ import annotations

import msgspec

from cudal1_ci.records.program import Program, program_identity
from cudal1_ci.records.record import Count, Name, NotNegative, Published, Text, content_hash


class Identity(Published, frozen=True, kw_only=True):
    """A model as it answers, as exactly as its server says."""

    model: Name
    """As the server names it."""
    revision: Name | None = None
    """Of the weights, where they are a folder or a snapshot of a hub."""
    adapter: Name | None = None
    """Hash of the adapter's weights."""
    adapter_name: Name | None = None
    """Of the adapter's folder."""
    server: Name = ""
    """What answered: `vllm 0.26.0`, `transformers 5.17.0`, the host of a URL."""
    temperature: NotNegative
    top_p: NotNegative = 1.0
    max_tokens: Count


class Generation(Identity, frozen=True, kw_only=True):
    """Describe how a model's text came to be."""

    seed: Count | None = None
    prompt_digest: Name
    """`content_hash` of the messages."""
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    turn: Count = 0
    """0 is a first answer, 1 the answer to what was wrong with it."""


class Edit(Published, frozen=True, kw_only=True):
    """Describe one change that was applied to a program, with its reason."""

    operator: Name
    """Name in the table of rewrites and wrappers: `sdpa`, `compile`."""
    technique: Name
    """Family of the operator: `operation fusion`."""
    found: tuple[Text, ...]
    """What was changed, one line for each place."""
    why: Text
    """Why the change should be faster."""
    precondition: Text = ""
    """What must hold for the change to be right, and what it costs."""


class Candidate(Published, frozen=True, kw_only=True):
    """A program that somebody proposes instead of the reference."""

    problem_id: Name
    known_id: Name | None = msgspec.field(name="id", default=None)
    """In a report, which leaves out the changed files of a program: they are in `patch`."""
    program: Program
    proposer: Name
    """`playbook:sdpa`, `playbook:sdpa+hoist_mask`, a model's name, `pull_request`."""
    analysis: Text = ""
    """Why it should be faster, in prose."""
    design: Text = ""
    """What it needs to be right: preconditions, the technique family."""
    techniques: tuple[Name, ...] = ()
    edits: tuple[Edit, ...] = ()
    """What was applied, in order. Proposer, techniques, analysis and design are derived from it."""
    exemplar_ids: tuple[Name, ...] = ()
    generation: Generation | None = None
    """Of a candidate that a model wrote."""
    patch: Text | None = None
    """In a report: the unified diff, for `git apply`; None for a program that has no checkout."""

    @property
    def id(self) -> str:
        """Return the content hash of the program and the problem; the proposer does not matter."""
        return self.known_id or content_hash([self.problem_id, program_identity(self.program)])
