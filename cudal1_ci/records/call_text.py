"""Format arguments as a person would write them: `(float32[8, 128, 256], mask=bool[8, 128])`.

For reading only: the text is not parsed again, so long values are cut rather than kept whole.

    call_text(Call(args=(TensorSpec(shape=(8, 128), dtype="int64", low=0, high=999),)))
    == "(int64[8, 128] in 0..999)"
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from cudal1_ci.records import (
    ArgumentSpec,
    Call,
    Constant,
    Instance,
    Items,
    Made,
    Mapping,
    Symbol,
    TensorSpec,
)

MAX_ITEMS = 8
"""A list of eight shapes still fits in two lines of a terminal; of a longer one the length tells
more than the rest."""
MAX_DEPTH = 6
MAX_TEXT = 60

BRACKETS = {"list": ("[", "]"), "tuple": ("(", ")"), "set": ("{", "}"), "dict": ("{", "}")}


def call_text(call: Call | Made) -> str:
    """Format the arguments of a call in parentheses, or the function that makes them."""
    if isinstance(call, Made):
        return f"{call.path}:{call.function}()" if call.path else f"{call.function}()"
    return f"({', '.join(_arguments(call.args, call.kwargs, MAX_DEPTH))})"


def _text(spec: ArgumentSpec, depth: int) -> str:
    if depth == 0:
        return "..."
    match spec:
        case TensorSpec():
            return _tensor(spec)
        case Constant(value=value):
            return _short(repr(value))
        case Symbol(path=path):
            return path.replace(":", ".").removeprefix("builtins.")
        case Items(items=items, container=container):
            return _items([_text(item, depth - 1) for item in items], container)
        case Mapping(items=pairs, container=container):
            texts = [f"{_text(k, depth - 1)}: {_text(v, depth - 1)}" for k, v in pairs]
            return _items(texts, container)
        case Instance(factory=factory, args=args, kwargs=kwargs):
            name = factory.partition(":")[2] or factory
            return f"{name}({_join(_arguments(args, kwargs, depth - 1))})"


def _tensor(spec: TensorSpec) -> str:
    """Format `float32[8, 128]` with its unusual properties: range of integers, strides, device."""
    text = f"{spec.dtype}{list(spec.shape)}"
    if spec.dtype.lstrip("u").startswith("int") and spec.low is not None and spec.high is not None:
        text += f" in {spec.low:.0f}..{spec.high:.0f}"
    if spec.stride is not None and spec.stride != _contiguous(spec.shape):
        text += f" strided {spec.stride}"
    if spec.device != "cpu":
        text += f" on {spec.device}"
    if spec.requires_grad:
        text += " with grad"
    return text


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _arguments(
    args: Iterable[ArgumentSpec], kwargs: dict[str, ArgumentSpec], depth: int
) -> list[str]:
    named = [f"{name}={_text(spec, depth)}" for name, spec in kwargs.items()]
    return [_text(spec, depth) for spec in args] + named


def _items(texts: list[str], container: str) -> str:
    comma = "," if container == "tuple" and len(texts) == 1 else ""
    if container == "set" and not texts:
        return "set()"
    if container in BRACKETS:
        opening, closing = BRACKETS[container]
        return f"{opening}{_join(texts)}{comma}{closing}"
    return f"{container.rpartition(':')[2]}({_join(texts)})"


def _join(texts: list[str]) -> str:
    shown = texts[:MAX_ITEMS]
    if len(texts) > MAX_ITEMS:
        shown.append(f"... {len(texts) - MAX_ITEMS} more")
    return ", ".join(shown)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
