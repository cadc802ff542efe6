"""Describe the tensors that a cell bound to names, by samples of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..wire.harvest import Output

MAX_OUTPUTS = 64
MAX_SAMPLED = 32
MAX_DEPTH = 2
MAX_ITEMS = 16


def identities(names: dict[str, Any]) -> dict[str, int]:
    """Return the identities of the values of a namespace, to see which ones are new."""
    return {name: id(value) for name, value in names.items()}


def outputs_of(names: dict[str, Any], before: dict[str, int]) -> tuple[Output, ...]:
    """Return the tensors among the values that are bound since then."""
    found: list[Output] = []
    for name, value in list(names.items()):
        if name.startswith("_") or before.get(name) == id(value):
            continue
        for path, tensor in tensors_in(name, value, 0):
            if len(found) >= MAX_OUTPUTS:
                return tuple(found)
            found.append(
                Output(
                    name=path[:80],
                    shape=tuple(tensor.shape),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    sample=sample_of(tensor),
                )
            )
    return tuple(found)


def tensors_in(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a value, also in tuples, lists and dicts, by name."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < MAX_DEPTH and isinstance(value, list | tuple):
        for number, item in enumerate(value[:MAX_ITEMS]):
            yield from tensors_in(f"{name}[{number}]", item, depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, dict):
        for key, item in list(value.items())[:MAX_ITEMS]:
            yield from tensors_in(f"{name}[{key!r}]", item, depth + 1)


def sample_of(tensor: Any) -> tuple[str, ...]:
    """Return values of a tensor at equal distances; none of a tensor that has no values here."""
    try:
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // MAX_SAMPLED)
        return tuple(str(one)[:40] for one in flat[::step][:MAX_SAMPLED].tolist())
    except Exception:  # noqa: BLE001 - a subclass or a device that does not say
        return ()
