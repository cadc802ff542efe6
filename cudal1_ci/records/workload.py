"""Describe how a target is called: tensors by shape and dtype, other arguments by value."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cudal1_ci.records.record import Count, Fraction, Name, NotNegative, Published, Text

Sizes = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)], ...], msgspec.Meta(max_length=64)
]
"""Of as many dimensions as torch knows."""


Invariant = Literal[
    "sorted",
    "descending",
    "unique",
    "permutation",
    "prefix",
    "offsets",
    "pairs",
    "shares",
    "definite",
    "flags",
    "range",
]
"""What values keep to; `docs/workloads.md` says what each means."""


class TensorSpec(Published, frozen=True, kw_only=True, tag="tensor"):
    """A tensor to be made by the verifier. `stride` None is contiguous; `low`/`high` are the
    observed (inclusive) range: integers are drawn uniformly in it, floats keep its scale and
    offset."""

    shape: Sizes
    dtype: Name
    """`float32`, `int64`, `bool`, ... as torch names it without the prefix."""
    stride: Sizes | None = None
    device: Name = "cpu"
    low: float | None = None
    high: float | None = None
    requires_grad: bool = False
    invariants: tuple[Invariant, ...] = ()
    """What its values keep to: rows in order, numbers that occur once, corners of boxes."""


class Constant(Published, frozen=True, kw_only=True, tag="constant"):
    """A plain value. Non-finite floats are an `Instance` of `builtins:float` with a string."""

    value: bool | int | float | str | None = None


class Symbol(Published, frozen=True, kw_only=True, tag="symbol"):
    """Something importable: `torch:float16`, `torch.nn:GELU`, `pkg.mod:Enum.MEMBER`."""

    path: Text


class Items(Published, frozen=True, kw_only=True, tag="items"):
    """`list`, `tuple`, `set`, or a namedtuple class as `pkg.mod:Point`, and what is in it."""

    items: tuple[ArgumentSpec, ...] = ()
    container: Name = "list"


class Mapping(Published, frozen=True, kw_only=True, tag="mapping"):
    """`dict` or the import path of a mapping class, as key-value pairs."""

    items: tuple[tuple[ArgumentSpec, ArgumentSpec], ...] = ()
    container: Name = "dict"


class Instance(Published, frozen=True, kw_only=True, tag="instance"):
    """An object made by calling `factory`: a config dataclass, a `torch:device`, a
    `functools:partial`, a nested module with the constructor arguments that were recorded."""

    factory: Name
    args: tuple[ArgumentSpec, ...] = ()
    kwargs: dict[Name, ArgumentSpec] = {}


ArgumentSpec = TensorSpec | Constant | Symbol | Items | Mapping | Instance


class Call(Published, frozen=True, kw_only=True, tag="call"):
    """Arguments of one call, as specs."""

    args: tuple[ArgumentSpec, ...] = ()
    kwargs: dict[Name, ArgumentSpec] = {}


class Made(Published, frozen=True, kw_only=True, tag="made"):
    """Arguments returned by a zero-argument function of the user's (`get_inputs`): a list or tuple
    for positional arguments, a dict for keyword arguments. `path` None is the program itself."""

    function: Name
    path: Name | None = None


class TracedSteps(Published, frozen=True, kw_only=True):
    """Training steps that a trace saw whole, each from one step of an optimizer to its next."""

    durations_us: tuple[NotNegative, ...]
    device: str | None = None
    """Name of the GPU on which all of them were made; None where that is not known."""
    optimizer: Name | None = None
    """Class of torch.optim that made all of them: `AdamW`."""


Provenance = Literal[
    "declared",
    "benchmark",
    "traced",
    "exported",
    "synthetic",
    "readme",
    "docs",
    "example",
    "notebook",
    "docstring",
    "main",
    "test",
    "config",
]
"""`traced` is a command of the user's. From `readme` on it is what the repository itself runs its
code with; `config` is a model of its default configuration, called with inputs that it takes."""
GUESSES: tuple[Provenance, ...] = ("synthetic", "config")
"""What is shown and never fails a check: no code calls it so."""


Floats = Literal["float16", "bfloat16", "float64"]
"""Dtypes of floats besides torch's default one."""
Autocast = Literal["float16", "bfloat16"]
"""Dtypes that `torch.autocast` casts to."""
SHORT_NAMES: dict[Autocast, str] = {"float16": "fp16", "bfloat16": "bf16"}


class Workload(Published, frozen=True, kw_only=True):
    """Describe one way in which a target is called."""

    name: Name
    provenance: Provenance
    source: Name | None = None
    """Where it was found: `pyproject.toml:tool.cudal1-ci.workload[0]`,
    `tests/test_vit.py::test_fwd`."""
    init: Call | Made | None = None
    """Constructor arguments; None for functions."""
    call: Call | Made
    mode: Literal["infer", "train"] = "infer"
    """`infer` is eval() under no_grad; `train` is train() and compares gradients too."""
    dtype: Floats | None = None
    """What the module's floats were converted to after its constructor, as by
    `model.bfloat16()`; None for what the constructor makes."""
    default_dtype: Floats | None = None
    """`torch.get_default_dtype()` where that is not float32."""
    autocast: Autocast | None = None
    """The dtype of `torch.autocast` for the device at the call; None where it is off. A backward
    pass is outside of it."""
    atol: float | None = None
    rtol: float | None = None
    """None: the budget comes from the fp64 oracle and the dtype (verifier)."""
    num_calls: Count | None = None
    share: Fraction | None = None
    """Share (0..1) of the time of `root` that was spent in calls like this one, without what other
    recorded calls inside took; of the whole traced time where `root` is None. First calls of a root
    are left out where there are others."""
    root: Name | None = None
    """`path:qualname` of the outermost module whose calls contain most of these."""
    traced_us: NotNegative | None = None
    """Mean microseconds of such a call, wherever it was traced."""
    calls_per_step: NotNegative | None = None
    """Mean number of calls like this one in a step of `steps`; None where none was traced."""
    steps: TracedSteps | None = None

    @property
    def is_guess(self) -> bool:
        """Return whether no code is known to make this call."""
        return self.provenance in GUESSES

    @property
    def dtypes(self) -> tuple[str | None, ...]:
        """Return the dtypes of the call besides those of its tensors; () where all are usual, so
        that a hash of such a call is what it was before there were any."""
        found = (self.dtype, self.default_dtype, self.autocast)
        return found if any(found) else ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return what distinguishes the call from one in plain inference: `train`, `bf16
        autocast`."""
        mode = ("train",) if self.mode == "train" else ()
        return mode if self.autocast is None else (*mode, f"{SHORT_NAMES[self.autocast]} autocast")
