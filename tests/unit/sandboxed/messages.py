"""Messages that tests send: with what does not matter filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cudal1_ci.sandboxed.wire.arguments import TensorSpec
from cudal1_ci.sandboxed.wire.programs import OverlayFile, Program, TextProgram, TreeProgram
from cudal1_ci.sandboxed.wire.recording import (
    Argument,
    Frame,
    Keyword,
    Launch,
    RecordedOperation,
    RecordedValue,
    Recording,
    Scope,
    Span,
)
from cudal1_ci.sandboxed.wire.runner import Called, Load
from cudal1_ci.sandboxed.wire.tensors import OutputSlot


def text(source: str = "", entry: str = "Model") -> TextProgram:
    return TextProgram(source=source, entry=entry)


def tree(root: Path | str, import_path: str = "m:Model", **texts: str) -> TreeProgram:
    """A checkout with these files laid over it; `__` in a name is a slash."""
    overlay = tuple(OverlayFile(path=p.replace("__", "/"), text=t) for p, t in texts.items())
    return TreeProgram(
        root=str(root), import_root=".", import_path=import_path, digest="d", overlay=overlay
    )


def load_of(program: Program, **fields: Any) -> Load:
    usual = {"init": None, "init_slots": (), "seed": 0, "train": False, "dtype": None}
    return Load(program=program, **{**usual, "device": "cpu", **fields})


def spec(shape: Any, dtype: str = "float32", **fields: Any) -> TensorSpec:
    return TensorSpec(shape=tuple(shape), dtype=dtype, **fields)


def recording() -> Recording:
    """A call of `x @ self.w` in a function that a module calls."""
    value = RecordedValue(
        shape=(2, 2),
        stride=(2, 1),
        dtype="float32",
        device="cpu",
        requires_grad=False,
        origin="input",
        fill=1.0,
    )
    weight = replace(value, origin="parameter", path="w", is_tril=True)
    span = Span(line=3, last_line=4, column=2, last_column=9)
    frame = Frame(file="m.py", function="M.forward", first_line=2, caller=None, call=None)
    operation = RecordedOperation(
        name="__matmul__",
        args=(Argument(kind="value", value=0), Argument(kind="value", value=1)),
        kwargs=(Keyword(name="dim", argument=Argument(kind="literal", text="-1")),),
        outputs=(2,),
        frame=1,
        span=span,
        scope=0,
        host_us=1.5,
        device_us=2.5,
        launch=Launch(language="triton", kernel="k", grid=(2, 1), num_warps=4, first_line=7),
    )
    held = Argument(kind="tuple", items=(Argument(kind="value", value=0),))
    return Recording(
        values=(value, weight, replace(value, origin="operation", fill=None)),
        frames=(frame, replace(frame, function="f", caller=0, call=span)),
        scopes=(Scope(locals=(Keyword(name="x", argument=held),)),),
        operations=(operation,),
        outputs=(2,),
        total_us=9.5,
    )


def called(**fields: Any) -> Called:
    """A call that returned one tensor of six floats."""
    slot = OutputSlot(dtype="float32", shape=(2, 3), stride=(3, 1), device="cpu", own_stride=(3, 1))
    usual = {"structure": "*", "types": ("Tensor",), "aliases": ((),), "shares": ((),)}
    usual |= {"used_rng": False, "seeded": False, "slots": (slot,), "num_leaves": 1}
    usual |= {"lazy": (), "is_rewritten": False, "joined": ()}
    return Called(**{**usual, **fields})
