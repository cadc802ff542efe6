"""Describe a program that is meant to replace a reference, and who proposed it."""

from __future__ import annotations

from cudal1_ci.records.program import Program, program_identity
from cudal1_ci.records.record import Record, content_hash


class Identity(Record, frozen=True, kw_only=True):
    """A model as it answers, as exactly as its server says."""

    model: str
    """As the server names it."""
    revision: str | None = None
    """Of the weights, where they are a folder or a snapshot of a hub."""
    adapter: str | None = None
    """Hash of the adapter's weights."""
    adapter_name: str | None = None
    """Of the adapter's folder."""
    server: str = ""
    """What answered: `vllm 0.26.0`, `transformers 5.17.0`, the host of a URL."""
    temperature: float
    top_p: float = 1.0
    max_tokens: int


class Generation(Identity, frozen=True, kw_only=True):
    """How a model's text came to be."""

    seed: int | None = None
    prompt_digest: str
    """`content_hash` of the messages."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    turn: int = 0
    """0 is a first answer, 1 the answer to what was wrong with it."""


class Edit(Record, frozen=True, kw_only=True):
    """One change that was applied to a program, with its reason."""

    operator: str
    """Name in the table of rewrites and wrappers: `sdpa`, `compile`."""
    technique: str
    """Family of the operator: `operation fusion`."""
    found: tuple[str, ...]
    """What was changed, one line for each place."""
    why: str
    """Why the change should be faster."""
    precondition: str = ""
    """What must hold for the change to be right, and what it costs."""


class Candidate(Record, frozen=True, kw_only=True):
    """A program that somebody proposes instead of the reference."""

    problem_id: str
    program: Program
    proposer: str
    """`playbook:sdpa`, `playbook:sdpa+hoist_mask`, a model's name, `pull_request`."""
    analysis: str = ""
    """Why it should be faster, in prose."""
    design: str = ""
    """What it needs to be right: preconditions, the technique family."""
    techniques: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    """What was applied, in order. Proposer, techniques, analysis and design are derived from it."""
    exemplar_ids: tuple[str, ...] = ()
    generation: Generation | None = None
    """Of a candidate that a model wrote."""

    @property
    def id(self) -> str:
        """Content hash of the program and the problem: who proposed it does not matter."""
        return content_hash([self.problem_id, program_identity(self.program)])
