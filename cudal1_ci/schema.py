"""The nouns. Read this file first.

A Change has Targets; a Target with Workloads is a Problem; proposers write Candidates; the judge
runs a Trial of each and records an Evaluation; Entries of all of it make the Report.

Records are frozen, keyword-only and refuse unknown fields. Times are microseconds (`_us`), sizes
bytes, a `speedup` above 1 is faster. Absent is None, never a sentinel number. Raw times are kept:
speedups and intervals are derived when read (`score.py`). Nothing here is made to be published:
the JSON that users may rely on is `report/document.py`.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal

import msgspec


class Record(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of every record: immutable, by keyword, no unknown fields."""


def content_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of a record's canonical JSON."""
    encoded = msgspec.json.encode(msgspec.to_builtins(value), order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]


# --- where the code is -----------------------------------------------------------------------

TargetKind = Literal["torch_module", "torch_function", "triton_kernel", "cuda_kernel"]


class FileChange(Record, frozen=True, kw_only=True):
    """One file of a change: text before and after; None where it did not exist or was removed."""

    path: str
    previous_path: str | None = None
    before: str | None = None
    after: str | None = None


class Change(Record, frozen=True, kw_only=True):
    """What a pull request, or `--changed BASE`, changed. Born in forge, read by discover."""

    repository: str
    base_sha: str
    head_sha: str | None
    """None for a working tree that is not committed."""
    files: tuple[FileChange, ...]


class Target(Record, frozen=True, kw_only=True):
    """A piece of code that can be made faster. Lines are 1-based and inclusive."""

    path: str
    """POSIX path relative to the repository root."""
    qualname: str
    """`Class`, `Outer.Inner` or `function`; for CUDA the kernel's name with its namespaces."""
    kind: TargetKind
    first_line: int
    last_line: int
    launchers: tuple[str, ...] = ()
    """For kernels: `path:qualname` of the Python functions or bindings that launch them."""
    selected_because: str | None = None
    """With `--changed`: `changed`, or `calls src/ops.py:rotate`, the changed thing that it uses; of
    a kernel also `launched by src/ops.py:rotate`."""

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on a GPU, and only where something launches it."""
        return self.kind in ("triton_kernel", "cuda_kernel")

    @property
    def only_uses_change(self) -> bool:
        """Whether it stands as it did, and only what it uses was changed."""
        return self.selected_because not in (None, "changed")

    @property
    def last_name(self) -> str:
        """Without the class or the namespace around it."""
        return self.qualname.rpartition("::")[2].rpartition(".")[2]


# --- how it is called ------------------------------------------------------------------------


class TensorSpec(Record, frozen=True, kw_only=True, tag="tensor"):
    """A tensor to be made by the judge. `stride` None is contiguous; `low`/`high` are the observed
    (inclusive) range: integers are drawn uniformly in it, floats keep its scale and offset."""

    shape: tuple[int, ...]
    dtype: str
    """`float32`, `int64`, `bool`, ... as torch names it without the prefix."""
    stride: tuple[int, ...] | None = None
    device: str = "cpu"
    low: float | None = None
    high: float | None = None
    requires_grad: bool = False


class Constant(Record, frozen=True, kw_only=True, tag="constant"):
    """A plain value. Non-finite floats are an `Instance` of `builtins:float` with a string."""

    value: bool | int | float | str | None = None


class Symbol(Record, frozen=True, kw_only=True, tag="symbol"):
    """Something importable: `torch:float16`, `torch.nn:GELU`, `pkg.mod:Enum.MEMBER`."""

    path: str


class Items(Record, frozen=True, kw_only=True, tag="items"):
    """`list`, `tuple`, `set`, or a namedtuple class as `pkg.mod:Point`, and what is in it."""

    items: tuple[ArgumentSpec, ...] = ()
    container: str = "list"


class Mapping(Record, frozen=True, kw_only=True, tag="mapping"):
    """`dict` or the import path of a mapping class, as key-value pairs."""

    items: tuple[tuple[ArgumentSpec, ArgumentSpec], ...] = ()
    container: str = "dict"


class Instance(Record, frozen=True, kw_only=True, tag="instance"):
    """An object made by calling `factory`: a config dataclass, a `torch:device`, a
    `functools:partial`, a nested module with the constructor arguments that were recorded."""

    factory: str
    args: tuple[ArgumentSpec, ...] = ()
    kwargs: dict[str, ArgumentSpec] = {}


ArgumentSpec = TensorSpec | Constant | Symbol | Items | Mapping | Instance


class Call(Record, frozen=True, kw_only=True, tag="call"):
    """Arguments of one call, as specs."""

    args: tuple[ArgumentSpec, ...] = ()
    kwargs: dict[str, ArgumentSpec] = {}


class Made(Record, frozen=True, kw_only=True, tag="made"):
    """Arguments returned by a zero-argument function of the user's (`get_inputs`): a list or tuple
    for positional arguments, a dict for keyword arguments. `path` None is the program itself."""

    function: str
    path: str | None = None


class TracedSteps(Record, frozen=True, kw_only=True):
    """Training steps that a trace saw whole, each from one step of an optimizer to its next."""

    durations_us: tuple[float, ...]
    device: str | None = None
    """Name of the GPU on which all of them were made; None where that is not known."""


Provenance = Literal["declared", "benchmark", "traced", "exported", "synthetic"]


class Workload(Record, frozen=True, kw_only=True):
    """One way in which a target is called."""

    name: str
    provenance: Provenance
    source: str | None = None
    """Where it was found: `pyproject.toml:tool.cudal1-ci.workload[0]`,
    `tests/test_vit.py::test_fwd`."""
    init: Call | Made | None = None
    """Constructor arguments; None for functions."""
    call: Call | Made
    mode: Literal["infer", "train"] = "infer"
    """`infer` is eval() under no_grad; `train` is train() and compares gradients too."""
    atol: float | None = None
    rtol: float | None = None
    """None: the budget comes from the fp64 oracle and the dtype (judge)."""
    num_calls: int | None = None
    share: float | None = None
    """Share (0..1) of the traced time that was spent in calls like this one."""
    traced_us: float | None = None
    """Mean microseconds of such a call, wherever it was traced."""
    calls_per_step: float | None = None
    """Mean number of calls like this one in a step of `steps`; None where none was traced."""
    steps: TracedSteps | None = None


# --- what is judged --------------------------------------------------------------------------


class TextProgram(Record, frozen=True, kw_only=True, tag="text"):
    """A KernelBench-form file: a class `entry` and the functions that make its arguments."""

    source: str
    entry: str


class OverlayFile(Record, frozen=True, kw_only=True):
    """A file of the checkout as the candidate would have it."""

    path: str
    text: str
    base_digest: str | None = None
    """`content_hash` of the text that it replaces; None for a file that did not exist."""


class TreeProgram(Record, frozen=True, kw_only=True, tag="tree"):
    """A class or function of a checkout, with the changed files laid over it."""

    root: str
    """Absolute path of the checkout. Not part of the content hash."""
    import_root: str
    """Folder relative to `root` that must be on sys.path: `.`, `src`."""
    import_path: str
    """`pkg.mod:Qual.Name`"""
    digest: str
    """Hash of the target's file and of all files of the checkout that it imports."""
    overlay: tuple[OverlayFile, ...] = ()


Program = TextProgram | TreeProgram


def program_identity(program: Program) -> Any:
    """What of a program decides its behavior: everything but where the checkout lies."""
    builtins = msgspec.to_builtins(program)
    builtins.pop("root", None)
    return builtins


class Problem(Record, frozen=True, kw_only=True):
    """A reference program and the workloads under which it matters."""

    reference: Program
    workloads: tuple[Workload, ...]
    target: Target | None = None

    @property
    def id(self) -> str:
        """Content hash of the reference and of what the workloads call it with; for a kernel also
        of which one, as what launches it is the reference of other problems too, in which another
        answer wins."""
        calls = [(w.init, w.call, w.mode, w.atol, w.rtol) for w in self.workloads]
        parts = [program_identity(self.reference), calls]
        if self.target is not None and self.target.is_kernel:
            parts.append((self.target.path, self.target.qualname))
        return content_hash(parts)

    @property
    def share(self) -> float | None:
        """Share (0..1) of the traced time that its calls took by themselves, without that of other
        traced calls inside of them; None where none was traced."""
        shares = [one.share for one in self.workloads if one.share is not None]
        return sum(shares) if shares else None


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
    exemplar_ids: tuple[str, ...] = ()
    generation: Generation | None = None
    """Of a candidate that a model wrote."""

    @property
    def id(self) -> str:
        """Content hash of the program and the problem: who proposed it does not matter."""
        return content_hash([self.problem_id, program_identity(self.program)])


# --- what was found --------------------------------------------------------------------------

Status = Literal[
    "passed",
    "compile_error",
    "runtime_error",
    "timeout",
    "incorrect_shape",
    "incorrect_dtype",
    "incorrect_values",
    "precision",
    "mutates_input",
    "reward_hack",
    "degenerate",
    "invalid_reference",
    "inconclusive",
    "harness_error",
]


class Finding(Record, frozen=True, kw_only=True):
    """Something seen, with the rule's name: `values.mismatch`, `timing.reconciliation`."""

    rule: str
    message: str
    line: int | None = None
    evidence: str | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """Is the candidate the same function, honestly computed?"""

    status: Status
    findings: tuple[Finding, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    log: str = ""
    """The last lines of what the program printed or raised."""


class Device(Record, frozen=True, kw_only=True):
    """What the measurement ran on. Clock, power and temperature are absent where unknown."""

    kind: Literal["cpu", "cuda"]
    name: str
    num_threads: int | None = None
    capability: str | None = None
    driver: str | None = None
    software: dict[str, str] = {}
    """Versions: `python`, `torch`, `cuda`, `triton`, `platform`; `container` is the image with its
    digest, and `container_engine` what ran it, where the judge ran in one."""
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    other_processes: int | None = None
    sandbox_missing: tuple[str, ...] = ()
    """Layers of the sandbox that this machine did not grant to the programs that ran here."""

    @property
    def key(self) -> str:
        """What must agree for a measurement to be re-used: hardware and software, not its mood."""
        return content_hash(
            [self.kind, self.name, self.num_threads, self.capability, self.driver, self.software]
        )


class Demand(Record, frozen=True, kw_only=True):
    """What a call of a reference asks of any device at the least; see worker/demand.py."""

    num_bytes: int
    """Of inputs, parameters, buffers and outputs."""
    product_flops: int = 0
    """Of matrix products and attention."""
    convolution_flops: int = 0
    dtype: str = "none"
    """Of what it returns, as torch names it."""


class Launch(Record, frozen=True, kw_only=True):
    """Paired times from one pair of fresh processes: `reference_us[i]` and `candidate_us[i]` are
    microseconds per call of two batches run back to back, in random order, on the same inputs."""

    reference_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    num_calls: int
    """Calls in each batch."""

    def __post_init__(self) -> None:
        if len(self.reference_us) != len(self.candidate_us) or not self.reference_us:
            raise ValueError(
                "a launch needs as many candidate times as reference times, at least one"
            )


class Measurement(Record, frozen=True, kw_only=True):
    """Raw paired times of one workload against one baseline, with its control."""

    workload: str
    baseline: str = "eager"
    launches: tuple[Launch, ...]
    control: tuple[Launch, ...] = ()
    """The reference against itself in the same session (A/A)."""
    device: Device


class Kernel(Record, frozen=True, kw_only=True):
    """A kernel that one call of a candidate launched, as a profiler in its process says."""

    name: str
    num_launches: int
    device_us: float
    """All launches together."""
    is_own: bool
    """Whether the candidate's text defines it."""


class Evaluation(Record, frozen=True, kw_only=True):
    """A judged candidate. Only a candidate that passed has measurements."""

    candidate: Candidate
    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    """On a GPU, of a candidate that passed and defines kernels; the longest first."""
    device: Device | None = None
    elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        if self.measurements and self.verdict.status != "passed":
            raise ValueError(f"a candidate that is {self.verdict.status} cannot have measurements")


class Exemplar(Record, frozen=True, kw_only=True):
    """An earlier variant shown to a proposer, with what it was worth."""

    candidate: Candidate
    score: float
    origin: str | None = None
    """Where it is from, when not from this problem on this device: `of a similar module,
    src/ops.py:RMSNorm`, `measured on an NVIDIA A100`."""


class ModelUse(Record, frozen=True, kw_only=True):
    """What a model was asked for one target, and what became of its answers."""

    model: str
    adapter: str | None = None
    """Hash of the adapter that was on its weights."""
    adapter_name: str | None = None
    num_answers: int = 0
    refused: dict[str, int] = {}
    """Answers of which no candidate came, by the kind of the failure: `no_code`, `truncated`,
    `rate_limit`, `duplicate`, `unchanged`."""
    num_repairs: int = 0
    """Of the answers, those to what was wrong with an earlier one."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    generating_s: float = 0.0
    """While at least one answer was under way."""
    waiting_s: float = 0.0
    """Of that, while the judge had nothing to do."""


class OpinionUse(Record, frozen=True, kw_only=True):
    """What another model was asked about the jumps of one target."""

    model: str
    num_asked: int = 0
    num_suspected: int = 0
    failed: dict[str, int] = {}
    """Questions without an opinion, by what happened: `timeout`, `unreadable`, `prompt`."""


class Contradiction(Record, frozen=True, kw_only=True):
    """A claim of a candidate's analysis that was measured to be otherwise."""

    candidate_id: str
    claim: str
    """The sentence, in the words of who proposed it."""
    measured: str
    """What was measured instead, and on what."""


# --- whether it got slower -------------------------------------------------------------------

ComparisonVerdict = Literal[
    "regression", "improvement", "same", "inconclusive", "new", "removed", "skipped"
]


class Acknowledgement(Record, frozen=True, kw_only=True):
    """A slowdown that somebody has agreed to, written into the repository's configuration."""

    target: str
    """Glob over `path:qualname`."""
    max_slowdown: float
    """What is agreed to: 1.2 is a fifth slower."""
    reason: str
    owner: str
    expires: str
    """The last day on which it holds, `2026-12-31`."""


class ComparedWorkload(Record, frozen=True, kw_only=True):
    """One workload on both trees. In its measurements the base is the reference and the head the
    candidate; the first one found what the others, in new processes, were to find again."""

    workload: str
    verdict: ComparisonVerdict
    measurements: tuple[Measurement, ...] = ()
    reason: str | None = None
    """Why nothing is known of it, or why it is inconclusive."""


class Comparison(Record, frozen=True, kw_only=True):
    """A target before and after a change."""

    verdict: ComparisonVerdict
    """That of the worst workload (`slowdown.worst`)."""
    rows: tuple[ComparedWorkload, ...] = ()
    reason: str | None = None
    """Why it was not compared: it is new, was removed, or could not be called."""
    output_change: str | None = None
    """How the outputs of the two differ, where they do: it is noted, and no verdict on time."""
    acknowledged: Acknowledgement | None = None


# --- what is told ----------------------------------------------------------------------------


class Entry(Record, frozen=True, kw_only=True):
    """A target with all that was tried on it, or the reason that nothing was."""

    target: Target
    skipped: str | None = None
    hint: str | None = None
    """For a skipped target: what would make it judgeable."""
    workloads: tuple[Workload, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    model_use: ModelUse | None = None
    opinion_use: OpinionUse | None = None
    contradictions: tuple[Contradiction, ...] = ()
    reused: tuple[str, ...] = ()
    """Ids of the candidates whose evaluation came from the archive."""
    best: int | None = None
    """Index into `evaluations` of the proposal worth showing; None when there is none."""
    comparison: Comparison | None = None
    """With its base, where that was asked for."""

    def __post_init__(self) -> None:
        if self.best is not None and self.evaluations[self.best].verdict.status != "passed":
            raise ValueError("the best evaluation of an entry must have passed")


class Notice(Record, frozen=True, kw_only=True):
    """A file or target that could not be looked at, and why."""

    path: str
    message: str


class Report(Record, frozen=True, kw_only=True):
    """What goes back to the person who asked."""

    repository: str
    folder: str = "."
    """What was looked at, below the top of the repository: paths begin there."""
    base_sha: str | None = None
    head_sha: str | None = None
    device: Device | None = None
    entries: tuple[Entry, ...] = ()
    warnings: tuple[Notice, ...] = ()
    elapsed_s: float = 0.0
    generated_at: datetime | None = None
    searched: bool = True
    """Whether faster versions were looked for; a comparison looks for none."""
    """When it was finished; None of what was measured in no run."""
    ended: Literal["done", "budget", "interrupted"] = "done"

    @property
    def complete(self) -> bool:
        """Whether every target had its turn."""
        return self.ended == "done"
