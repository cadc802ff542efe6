"""cudal1-ci: finds slow PyTorch code and GPU kernels and proves faster versions.

What a user may import is named here; everything else may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudal1_ci.declare import workload

if TYPE_CHECKING:
    from cudal1_ci.verification.verify import verify

__all__ = ["__version__", "verify", "workload"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`verify` when it is asked for: who only decorates a module needs none of what it imports."""
    if name == "verify":
        from cudal1_ci.verification.verify import verify

        return verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
