"""Name a piece of code that can be made faster."""

from __future__ import annotations

from typing import Literal

from cudal1_ci.records.record import Line, Name, Published, Text

TargetKind = Literal["torch_module", "torch_function", "triton_kernel", "cuda_kernel"]


class Target(Published, frozen=True, kw_only=True):
    """A piece of code that can be made faster. Lines are 1-based and inclusive."""

    path: Name
    """POSIX path relative to the repository root."""
    qualname: Name
    """`Class`, `Outer.Inner` or `function`; for CUDA the kernel's name with its namespaces."""
    kind: TargetKind
    first_line: Line
    last_line: Line
    launchers: tuple[Name, ...] = ()
    """For kernels: `path:qualname` of the Python functions or bindings that launch them."""
    selected_because: Text | None = None
    """With `--changed`: `changed`, or `calls src/ops.py:rotate`, the changed thing that it uses; of
    a kernel also `launched by src/ops.py:rotate`."""

    @property
    def address(self) -> str:
        """Return `path:qualname`."""
        return f"{self.path}:{self.qualname}"

    @property
    def is_kernel(self) -> bool:
        """Return whether the target runs on a GPU, and only where something launches it."""
        return self.kind in ("triton_kernel", "cuda_kernel")

    @property
    def only_uses_change(self) -> bool:
        """Return whether the target itself is unchanged, and only what it uses was changed."""
        return self.selected_because not in (None, "changed")

    @property
    def last_name(self) -> str:
        """Return the name without the class or the namespace around it."""
        return self.qualname.rpartition("::")[2].rpartition(".")[2]
