"""Messages that tests send: with what does not matter filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cudal1_ci.sandboxed.wire.arguments import TensorSpec
from cudal1_ci.sandboxed.wire.programs import OverlayFile, Program, TextProgram, TreeProgram
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


def called(**fields: Any) -> Called:
    """A call that returned one tensor of six floats."""
    slot = OutputSlot(dtype="float32", shape=(2, 3), stride=(3, 1), device="cpu", own_stride=(3, 1))
    usual = {"structure": "*", "types": ("Tensor",), "aliases": ((),), "shares": ((),)}
    usual |= {"used_rng": False, "seeded": False, "slots": (slot,), "num_leaves": 1}
    usual |= {"lazy": (), "is_rewritten": False}
    return Called(**{**usual, **fields})
