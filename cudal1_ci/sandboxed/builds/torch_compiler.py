"""Import in advance what a text with torch.compile will import, in the process that it is forked
from.

The imports of Dynamo, Inductor and Triton take most of the time of a small compiled program. The
list is fixed, as a candidate must not choose what that process imports. It is a separate process,
because these modules fix at import what they read, such as environment variables. A program that
sets some imports the modules itself. So does a program of a checkout whose reference changes the
environment when it is loaded.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from ..wire.programs import Program, TextProgram

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
"""Folders that torch._inductor.codecache names when it is imported."""


def modules_for(program: Program, keeps_environment: bool) -> tuple[str, ...]:
    """Return the modules to import before the program. `keeps_environment` says that the checkout
    of a program, as its reference is, changes no environment variable."""
    if isinstance(program, TextProgram):
        texts = [program.source]
    else:
        texts = [one.text for one in program.overlay if keeps_environment]
    asks = any(_ASKS.search(one) for one in texts)
    return MODULES if asks and not any(_SETS.search(one) for one in texts) else ()


def settle_in() -> None:
    """Point the modules to the folders of this process where they know those of another one."""
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    for name, inside in _HEADERS.items():
        if hasattr(codecache, name):
            setattr(codecache, name, str(Path(codecache.default_cache_dir()) / inside))
