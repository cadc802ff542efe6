"""What a runner's answers must look like before the judge computes with them.

A runner is hostile: an answer that lacks a field, or whose numbers are none, is a fact about its
program and never an exception of the judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..memory.segment import dtype_of

MAX_SLOTS = 4096
MAX_DIMENSIONS = 64
MAX_ELEMENTS = 2**56
MAX_TEXT_CHARS = 2**20
MAX_ROWS = 256
MAX_NAME_CHARS = 512


class Malformed(Exception):
    """Not an answer to what was asked."""


def need(holds: bool, what: str) -> None:
    """Raises Malformed."""
    if not holds:
        raise Malformed(what)


def check(op: str, reply: dict[str, Any]) -> None:
    """Raises Malformed when `reply` is no answer to the request `op`."""
    checker = CHECKERS.get(op)
    if checker is None:
        return
    try:
        checker(reply)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from error


def check_slot(slot: dict[str, Any]) -> None:
    """A tensor's dtype, shape and strides."""
    dtype_of(slot["dtype"])
    shape, stride = slot["shape"], slot["stride"]
    need(len(shape) == len(stride) <= MAX_DIMENSIONS, "shape and stride")
    need(all(type(n) is int and n >= 0 for n in [*shape, *stride]), "shape and stride")
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True) if n)
    need(math.prod(shape) <= MAX_ELEMENTS and extent <= MAX_ELEMENTS, "size")


def check_slots(slots: list[dict[str, Any]]) -> None:
    need(isinstance(slots, list) and len(slots) <= MAX_SLOTS, "slots")
    for slot in slots:
        check_slot(slot)


def check_call(reply: dict[str, Any]) -> None:
    """What calls returned."""
    need(isinstance(reply["flags"], dict), "flags")
    need(isinstance(reply["calls"], list), "calls")
    for call in reply["calls"]:
        check_slots(call["slots"])
        need(all(isinstance(slot["device"], str) for slot in call["slots"]), "device")
        for slot in call["slots"]:
            check_slot({**slot, "stride": slot["own_stride"]})
        num_leaves = call["num_leaves"]
        need(type(num_leaves) is int and 0 <= num_leaves <= len(call["slots"]), "num_leaves")
        structure = call["structure"]
        need(isinstance(structure, str) and len(structure) <= MAX_TEXT_CHARS, "structure")
        for name, kind in (("types", str), ("aliases", list), ("shares", list)):
            values = call[name]
            need(isinstance(values, list) and len(values) == num_leaves, name)
            need(all(isinstance(value, kind) for value in values), name)
        need(all(type(one) is int for value in call["aliases"] for one in value), "aliases")
        need(all(type(one) is str for value in call["shares"] for one in value), "shares")
        need(type(call["used_rng"]) is bool, "used_rng")
        need(type(call["seeded"]) is bool, "seeded")


def check_load(reply: dict[str, Any]) -> None:
    """A program's state."""
    check_slots(reply["state"])
    for slot in reply["state"]:
        need(isinstance(slot["key"], str) and type(slot["parameter"]) is bool, "state")
    check_imported(reply)


def check_imported(reply: dict[str, Any]) -> None:
    """Names of modules."""
    need(isinstance(reply["imported"], list), "imported")
    need(all(isinstance(name, str) for name in reply["imported"]), "imported")


def check_make(reply: dict[str, Any]) -> None:
    """What a user's function that makes arguments returned."""
    for call in reply["calls"]:
        need(isinstance(call["data"], str), "data")
        check_slots(call["slots"])


def check_claim(reply: dict[str, Any]) -> None:
    """What a runner says of its own time."""
    for name in ("claim_us", "issue_us"):
        value = reply[name]
        need(type(value) in (int, float) and math.isfinite(value), name)
        need(0 <= value < 1e12, name)


def check_aftermath(reply: dict[str, Any]) -> None:
    """What timed calls left."""
    check_slots(reply["slots"])
    names = reply["names"]
    need(len(names) == len(reply["slots"]), "names")
    need(all(isinstance(name, str) for name in names), "names")


def check_left(reply: dict[str, Any]) -> None:
    """What became of the outputs' memory and of functions."""
    for name, kind in (("aliases", int), ("patched", str)):
        values = reply[name]
        need(isinstance(values, list) and all(type(value) is kind for value in values), name)


def check_profile(reply: dict[str, Any]) -> None:
    """Where a program says that its time goes."""
    need(isinstance(reply["rows"], list) and len(reply["rows"]) <= MAX_ROWS, "rows")
    for row in reply["rows"]:
        need(row.keys() == {"name", "num_calls", "time_us"}, "rows")
        need(isinstance(row["name"], str) and len(row["name"]) <= MAX_NAME_CHARS, "name")
        need(type(row["num_calls"]) is int and 0 < row["num_calls"] < 2**40, "num_calls")
        time_us = row["time_us"]
        need(type(time_us) is float and 0 <= time_us < 1e12, "time_us")


def check_demand(reply: dict[str, Any]) -> None:
    """What a reference says that a call asks of the device."""
    need(reply.keys() == {"num_bytes", "product_flops", "convolution_flops", "dtype"}, "demand")
    for name in ("num_bytes", "product_flops", "convolution_flops"):
        need(type(reply[name]) is int and 0 <= reply[name] < 2**63, name)
    dtype = reply["dtype"]
    need(isinstance(dtype, str) and len(dtype) <= MAX_NAME_CHARS, "dtype")


def check_reached(reply: dict[str, Any]) -> None:
    """Whom a program says that gradients reach."""
    names = reply["names"]
    need(isinstance(names, list) and len(names) <= MAX_SLOTS, "names")
    need(all(isinstance(one, str) and len(one) <= MAX_TEXT_CHARS for one in names), "names")


def check_error(error: dict[str, Any]) -> None:
    """What a program raised."""
    need(isinstance(error, dict), "error")
    error.setdefault("traceback", "")
    for name in ("type", "message", "traceback"):
        need(isinstance(error[name], str) and len(error[name]) <= MAX_TEXT_CHARS, name)
    need(error.get("stage") in (None, "import", "compile"), "stage")


CHECKERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "error": check_error,
    "load": check_load,
    "imported": check_imported,
    "make": check_make,
    "call": check_call,
    "batch": check_claim,
    "exchange": check_claim,
    "aftermath": check_aftermath,
    "left": check_left,
    "profile": check_profile,
    "demand": check_demand,
    "reached": check_reached,
}
