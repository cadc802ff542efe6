"""Define what a verifier requests of a runner, and what a runner may answer.

A runner is hostile. The verifier can compute with any answer within the bounds. Names of dtypes are
compared with torch's where torch is (forkserver/handles.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from .arguments import GivenCall, Made
from .codec import Asks, AtMost, Form, Within
from .programs import Autocast, Floats, Program
from .recording import Recording
from .tensors import MAX_SLOTS, Count, OutputSlot, Slot, StateSlot, Text, need
from .verdicts import MOST_US, CallCost, Demand, KernelTime

MAX_ROWS = 256
Wider = Literal["float64"]
"""Dtype of the oracle's floats."""
WIDE_UNITS = 8
"""Units in the last place by which operations move where thresholds are looked for."""
Microseconds = Annotated[float, Within(0, MOST_US)]
Names = Annotated[tuple[Text, ...], AtMost(MAX_SLOTS)]

# --- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Base of what a runner answers."""

    def slots_said(self) -> Iterable[Slot]:
        """Return all tensor descriptions of the answer."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Done(Answer):
    """The request was carried out."""


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An exception of a program, or of the runner itself."""

    op: ClassVar[str] = "raised"
    kind: Text
    """Name of the exception's class."""
    message: Text
    traceback: Text = ""
    stage: Literal["import", "compile"] | None = None


@dataclass(frozen=True, kw_only=True)
class Loaded(Answer):
    """A program's state, and the modules that it imported."""

    state: Annotated[tuple[StateSlot, ...], AtMost(MAX_SLOTS)]
    imported: tuple[Text, ...]
    inexact: tuple[Text, ...]
    """What of its state has a type of the program's own (runner/exact_types.py)."""
    is_lazy: bool
    """Whether its first call makes some of its state, as the modules `Lazy...` of torch do."""
    changes_environment: bool
    """Whether environment variables are others since it was loaded."""

    def slots_said(self) -> Iterable[Slot]:
        return self.state


@dataclass(frozen=True, kw_only=True)
class Imported(Answer):
    """Names of modules."""

    names: tuple[Text, ...]


@dataclass(frozen=True, kw_only=True)
class MadeCall:
    """Arguments that a function of the user's made: a pickle that is passed on unread, its
    tensors, and the numbers of those that are the structure of others (indices of a sparse one), or
    that the reference's signature calls a mask."""

    data: str
    slots: Annotated[tuple[Slot, ...], AtMost(MAX_SLOTS)]
    structure: Annotated[tuple[Count, ...], AtMost(MAX_SLOTS)]
    masks: Annotated[tuple[Count, ...], AtMost(MAX_SLOTS)]

    def __post_init__(self) -> None:
        numbers = (*self.structure, *self.masks)
        need(all(one < len(self.slots) for one in numbers), "numbers of slots")


@dataclass(frozen=True, kw_only=True)
class MadeCalls(Answer):
    """The calls of all seeds."""

    calls: tuple[MadeCall, ...]
    imported: tuple[Text, ...]
    """Modules from outside the checkout that the function's file imported."""

    def slots_said(self) -> Iterable[Slot]:
        return [slot for call in self.calls for slot in call.slots]


@dataclass(frozen=True, kw_only=True)
class Called:
    """Results of a call: its tensors (in train mode followed by gradients and state), and all
    else as text."""

    structure: Text
    types: tuple[Text, ...]
    aliases: tuple[tuple[int, ...], ...]
    """Numbers of the inputs whose memory each output shares."""
    shares: tuple[tuple[str, ...], ...]
    joined: Names
    """Parameters whose gradients lie in the same memory, in pairs."""
    used_rng: bool
    seeded: bool
    slots: Annotated[tuple[OutputSlot, ...], AtMost(MAX_SLOTS)]
    num_leaves: int
    """Number of slots that were returned."""
    lazy: tuple[int, ...]
    """Outputs that leave work to their reader (runner/exact_types.py)."""
    is_rewritten: bool
    """Whether a later call put other tensors into a container that it returned."""

    def __post_init__(self) -> None:
        need(0 <= self.num_leaves <= len(self.slots), "num_leaves within the slots")
        for name in ("types", "aliases", "shares"):
            need(len(getattr(self, name)) == self.num_leaves, f"{name} of each leaf")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the process after calls."""

    default_dtype: Text
    grad_enabled: bool
    num_threads: int
    float32_matmul_precision: Text
    deterministic: bool
    cudnn_benchmark: bool
    cudnn_tf32: bool | Text
    default_device: Text
    function_modes: int
    dispatch_modes: int
    mkldnn: bool
    flush_denormal: bool
    affinity: tuple[int, ...]
    trace: tuple[bool, bool]
    patched: tuple[Text, ...]
    threads: tuple[Text, ...]
    environment: tuple[Text, ...]
    silences_warnings: bool
    process: tuple[tuple[Text, Text, Text], ...]
    """Settings that changed since the program was imported: the name, and the value before and
    now (runner/process_settings.py)."""


@dataclass(frozen=True, kw_only=True)
class CalledAll(Answer):
    """Results of some calls, and the settings after them."""

    calls: tuple[Called, ...]
    flags: Settings

    def slots_said(self) -> Iterable[Slot]:
        return [slot for call in self.calls for slot in call.slots]


@dataclass(frozen=True, kw_only=True)
class CachedBytes(Answer):
    """Device memory that the process has taken for its own tensors."""

    num_bytes: Count


@dataclass(frozen=True, kw_only=True)
class Claim(Answer):
    """A runner's measure of its own time: until its work was done, until its last call returned,
    and what the first calls took more than its usual one."""

    claim_us: Microseconds
    issue_us: Microseconds
    cold_us: Microseconds
    num_threads: int


@dataclass(frozen=True, kw_only=True)
class Remains(Answer):
    """Tensors that timed calls left: gradients of parameters, and the state."""

    names: tuple[Text, ...]
    slots: Annotated[tuple[Slot, ...], AtMost(MAX_SLOTS)]

    def __post_init__(self) -> None:
        need(len(self.names) == len(self.slots), "a name of each slot")

    def slots_said(self) -> Iterable[Slot]:
        return self.slots


@dataclass(frozen=True, kw_only=True)
class Left(Answer):
    """Outputs of timed calls that share an input's memory, overlap themselves or leave work to
    their reader; functions that were replaced, and settings that were changed."""

    aliases: tuple[int, ...]
    patched: tuple[Text, ...]
    overlapping: tuple[int, ...]
    lazy: tuple[int, ...]
    in_state: tuple[int, ...]
    """Outputs that are memory of the module's parameters or buffers."""
    forms: tuple[Text, ...]
    """Structure, types and dtypes of what the calls returned, each once."""
    process: tuple[tuple[Text, Text, Text], ...]


@dataclass(frozen=True, kw_only=True)
class Profiled(Answer):
    """Profile of calls, the longest first."""

    rows: Annotated[tuple[KernelTime, ...], AtMost(MAX_ROWS)]


@dataclass(frozen=True, kw_only=True)
class Priced(Answer):
    """What a profiled call takes besides its time."""

    cost: CallCost


@dataclass(frozen=True, kw_only=True)
class Spun(Answer):
    """How many calls were made."""

    num_calls: Count


@dataclass(frozen=True, kw_only=True)
class RecordedCall(Answer):
    """Operations of a call."""

    recording: Recording


@dataclass(frozen=True, kw_only=True)
class Counted(Answer):
    """Demand of a call on the device."""

    demand: Demand


@dataclass(frozen=True, kw_only=True)
class Reached(Answer):
    """Names of inputs and parameters that gradients reach."""

    names: Names


Growth = Annotated[float, Within(-1e15, 1e15)]
Plain = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of a call or of a constructor, as its signature and an example show it."""

    name: Text
    """As the signature names it, or its number."""
    kind: Literal["plain", "tensor", "container", "other"]
    value: Plain
    """The value of a plain one: the given one, else the default."""
    is_given: bool
    has_default: bool
    holds_value: bool
    """Whether a value was given or is the default."""


@dataclass(frozen=True, kw_only=True)
class Submodule:
    """A submodule that may behave otherwise in another mode, or looks up rows."""

    name: Text
    kind: Text
    num_rows: Count
    """Rows of an embedding; 0 of another one."""


@dataclass(frozen=True, kw_only=True)
class Surveyed(Answer):
    """What a program's signature and one call show of how it may be used."""

    arguments: Annotated[tuple[Parameter, ...], AtMost(MAX_SLOTS)]
    init: Annotated[tuple[Parameter, ...], AtMost(MAX_SLOTS)]
    tensors: Names
    """Names of the tensors of a call, in the order of the slots: `x`, `cache['k']`."""
    submodules: Annotated[tuple[Submodule, ...], AtMost(MAX_SLOTS)]
    attributes: Names
    """Public attributes that a call sets on the module."""
    words: Names
    """Words in quotation marks in the program's text."""
    is_module: bool
    is_class: bool
    mentions_hooks: bool
    replaces_submodules: bool
    """Whether the constructor of a subclass names one of its submodules."""
    mentions_graphs: bool
    """Whether its file takes derivatives of gradients."""
    mentions_checks: bool
    """Whether its file raises errors of its own."""


@dataclass(frozen=True, kw_only=True)
class Tried(Answer):
    """What a trial of a contract came to: facts in words, and tensors, each with its name."""

    facts: Annotated[tuple[tuple[Text, Text], ...], AtMost(MAX_SLOTS)]
    names: Names
    slots: Annotated[tuple[OutputSlot, ...], AtMost(MAX_SLOTS)]
    used_rng: bool
    growth: Annotated[tuple[Growth, ...], AtMost(8)]
    """What calls kept, in units that the recipe states."""

    def __post_init__(self) -> None:
        need(len(self.names) == len(self.slots), "a name of each slot")

    def slots_said(self) -> Iterable[Slot]:
        return self.slots


# --- requests ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wake(Asks[Done]):
    """Make the context of a device."""

    op: ClassVar[str] = "wake"
    device: str


@dataclass(frozen=True, kw_only=True)
class SettleIn(Asks[Done]):
    """Build in this folder from now on."""

    op: ClassVar[str] = "settle_in"
    cache: str


@dataclass(frozen=True, kw_only=True)
class Load(Asks[Loaded]):
    """Import a program and construct it."""

    op: ClassVar[str] = "load"
    program: Program
    init: GivenCall | None
    init_slots: tuple[Slot, ...]
    seed: int
    train: bool
    dtype: Wider | None
    device: str
    keys: tuple[Text, ...] | None = None
    """The part of its state that another program shares; None for all of it."""
    floats: Floats | None = None
    """What its floats are converted to, once it is constructed; `dtype` widens them after that."""
    default_dtype: Floats | None = None
    autocast: Autocast | None = None
    """What its calls are cast to; an oracle's are not."""


@dataclass(frozen=True, kw_only=True)
class Build(Asks[Done]):
    """Import a program for what it compiles."""

    op: ClassVar[str] = "build"
    program: Program


@dataclass(frozen=True, kw_only=True)
class MakeCalls(Asks[MadeCalls]):
    """Have a function of the user's make arguments, once for each seed."""

    op: ClassVar[str] = "make"
    program: Program
    function: Made
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Map(Asks[Done]):
    """Take shared memory under a name: a descriptor that comes along, or a handle of a GPU's."""

    op: ClassVar[str] = "map"
    segment: str
    num_bytes: int
    handle: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaidSet:
    """The places of an input set's tensors, and of the initial gradients of its backward pass."""

    slots: tuple[Slot, ...]
    data: str | None
    grads: tuple[bool, ...]
    cotangents: tuple[Slot, ...]


@dataclass(frozen=True, kw_only=True)
class Prepare(Asks[Done]):
    """Build arguments around the input sets."""

    op: ClassVar[str] = "prepare"
    sets: tuple[LaidSet, ...]
    call: GivenCall


@dataclass(frozen=True, kw_only=True)
class ListImported(Asks[Imported]):
    """Report which modules were imported since the program was loaded."""

    op: ClassVar[str] = "imported"


@dataclass(frozen=True, kw_only=True)
class Fill(Asks[Loaded]):
    """Make the state that a first call makes, by a call on an input set."""

    op: ClassVar[str] = "fill"
    number: int


@dataclass(frozen=True, kw_only=True)
class StateOut(Asks[Done]):
    """Copy the state to the segment `state`."""

    op: ClassVar[str] = "state_out"
    slots: tuple[StateSlot, ...]


@dataclass(frozen=True, kw_only=True)
class StateIn(Asks[Done]):
    """Take the state from the segment `state`."""

    op: ClassVar[str] = "state_in"
    slots: tuple[StateSlot, ...]


@dataclass(frozen=True, kw_only=True)
class CallSets(Asks[CalledAll]):
    """Call the program on input sets and keep what it returns. With a seed of `rounding` each
    operation's results move up or down at random, by that many units in the last place."""

    op: ClassVar[str] = "call"
    sets: tuple[int, ...]
    seeds: tuple[int, ...]
    is_between: bool = False
    rounding: int | None = None
    num_units: int = 1


@dataclass(frozen=True, kw_only=True)
class TurnSigns(Asks[Done]):
    """Turn the vectors of decompositions around at random in the calls from now on; without a
    seed no longer."""

    op: ClassVar[str] = "turn_signs"
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class Collect(Asks[Done]):
    """Copy what was kept of each call to a segment."""

    op: ClassVar[str] = "collect"
    slots: tuple[tuple[Slot, ...], ...]
    segment: str


@dataclass(frozen=True, kw_only=True)
class LayOut(Asks[Done]):
    """Set the possible places of the outputs of a batch's calls. With no region each output is
    committed as soon as it is returned. The shape of `bounded` outputs depends on values
    (runner/value_shapes.py)."""

    op: ClassVar[str] = "lay_out"
    slots: tuple[tuple[OutputSlot, ...], ...]
    step_bytes: int
    num_regions: int
    seeded: bool
    gathers_early: bool
    bounded: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True)
class AskCached(Asks[CachedBytes]):
    """Report how much device memory is taken for the program's own tensors."""

    op: ClassVar[str] = "cached"


@dataclass(frozen=True, kw_only=True)
class LetGo(Asks[Done]):
    """Release segments, by their names, and cached memory."""

    op: ClassVar[str] = "let_go"
    segments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GetReady(Asks[Done]):
    """Prepare for the next batch, outside of any clock, in this order."""

    op: ClassVar[str] = "ready"
    settles: bool = False
    """Whether outputs and gradients are dropped and garbage is collected."""
    sets: tuple[int, ...] | None = None
    """Sets that the batch calls, in this order; None are those of the batch before."""
    num_calls: int = 0
    """Calls to make now."""
    spin_s: float = 0.0
    """How long to wait busily for the next request."""


@dataclass(frozen=True, kw_only=True)
class Batch(Asks[Claim]):
    """Make the timed calls."""

    op: ClassVar[str] = "batch"
    seed: int
    keeps: bool = False
    """Whether outputs that are committed are kept until the last call returned."""
    rounding: int | None = None
    """As of `CallSets`, by `WIDE_UNITS`."""


@dataclass(frozen=True, kw_only=True)
class Exchange(Asks[Claim]):
    """Run a batch of a program that does nothing (Batches.exchange). The claim is the time in which
    it wrote outputs to commit."""

    op: ClassVar[str] = "exchange"
    seed: int


@dataclass(frozen=True, kw_only=True)
class Deliver(Asks[Done]):
    """Copy the outputs of the last batch to a region."""

    op: ClassVar[str] = "deliver"
    region: int


@dataclass(frozen=True, kw_only=True)
class Aftermath(Asks[Remains]):
    """Report what the calls of the last batch left."""

    op: ClassVar[str] = "aftermath"


@dataclass(frozen=True, kw_only=True)
class KeepOutputs(Asks[Done]):
    """Keep the outputs of one call of the last batch."""

    op: ClassVar[str] = "keep"
    position: int


@dataclass(frozen=True, kw_only=True)
class AskKept(Asks[Remains]):
    """Report the outputs that were kept, and forget them."""

    op: ClassVar[str] = "kept"


@dataclass(frozen=True, kw_only=True)
class AskLeft(Asks[Left]):
    """Report shared output memory and replaced functions."""

    op: ClassVar[str] = "left"


@dataclass(frozen=True, kw_only=True)
class Profile(Asks[Profiled]):
    """Profile calls on the input sets."""

    op: ClassVar[str] = "profile"
    sets: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PriceCall(Asks[Priced]):
    """Profile one call on an input set, event by event, with the memory that it takes."""

    op: ClassVar[str] = "price"
    number: int


@dataclass(frozen=True, kw_only=True)
class Spin(Asks[Spun]):
    """Make calls on an input set, one after the other, for some seconds."""

    op: ClassVar[str] = "spin"
    number: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RecordCall(Asks[RecordedCall]):
    """Record the operations of a call on an input set."""

    op: ClassVar[str] = "record"
    number: int


@dataclass(frozen=True, kw_only=True)
class CountDemand(Asks[Counted]):
    """Count what a call on an input set demands of the device."""

    op: ClassVar[str] = "demand"
    number: int


@dataclass(frozen=True, kw_only=True)
class Reach(Asks[Reached]):
    """Report what gradients reach from a call on an input set."""

    op: ClassVar[str] = "reached"
    number: int


@dataclass(frozen=True, kw_only=True)
class Survey(Asks[Surveyed]):
    """Report how the program may be used."""

    op: ClassVar[str] = "survey"
    sets: tuple[LaidSet, ...]
    call: GivenCall


@dataclass(frozen=True, kw_only=True)
class Try(Asks[Tried]):
    """Use the program in one of the ways that its users may (runner/contract/recipes.py)."""

    op: ClassVar[str] = "try"
    recipe: str
    target: str
    value: Plain
    sets: tuple[LaidSet, ...]
    call: GivenCall
    state: tuple[StateSlot, ...]
    """What a module constructed for the trial loads from the segment `state`."""
    seed: int
    is_new: bool
    """Whether the program is constructed for this trial, because the trial changes it."""
    is_wide: bool
    """Whether all floats are float64, for an oracle."""
    rounding: int | None = None
    num_units: int = 1
    """Both as of `CallSets`."""


Request = (
    Batch
    | Deliver
    | Exchange
    | GetReady
    | AskLeft
    | Aftermath
    | KeepOutputs
    | AskKept
    | CallSets
    | Collect
    | Prepare
    | LayOut
    | Wake
    | SettleIn
    | Load
    | Build
    | MakeCalls
    | Map
    | ListImported
    | Fill
    | StateOut
    | StateIn
    | TurnSigns
    | AskCached
    | LetGo
    | Profile
    | PriceCall
    | Spin
    | CountDemand
    | RecordCall
    | Reach
    | Survey
    | Try
)
REQUEST: Form[Request] = Form(Request)
