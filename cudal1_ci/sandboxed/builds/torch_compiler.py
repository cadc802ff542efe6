"""What a text that asks for torch.compile will import, so that the process it is forked from has it
already.

The imports of Dynamo, Inductor and Triton take most of what a small compiled program costs. A fixed
list, as a candidate does not say what that process imports. It is a process of its own, since what
these modules read when they are imported, such as variables of the environment, is settled then: a
program that sets some, and one of a checkout, whose other files may, imports them itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

MODULES = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.triton",
    "torch._inductor.runtime.triton_heuristics",
    "triton",
    "triton.compiler",
)
_ASKS = re.compile(r"\btorch\.compile\b|\btorch import compile\b|\b_dynamo\b|\b_inductor\b")
_SETS = re.compile(r"environ|putenv|setenv")
_HEADERS = {"_HEADER_DIR": "precompiled_headers", "_HEADER_LOCK_DIR": "precompiled_headers/locks"}
"""Of torch._inductor.codecache: folders that it names when it is imported."""


def modules_for(program: dict[str, Any]) -> tuple[str, ...]:
    """What to import before the program is."""
    text = program.get("source") or ""
    return MODULES if _ASKS.search(text) and not _SETS.search(text) else ()


def settle_in() -> None:
    """Go on with the folders of this process, where the modules know those of another one."""
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    for name, inside in _HEADERS.items():
        if hasattr(codecache, name):
            setattr(codecache, name, str(Path(codecache.default_cache_dir()) / inside))
