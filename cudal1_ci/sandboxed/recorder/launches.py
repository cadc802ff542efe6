"""See launches of Triton kernels and calls of extensions while a call is recorded.

`kernel[grid](...)` ends in `JITFunction.run`, below autotuners and heuristics, and in the
interpreter in `InterpretedFunction.run`. A function of a module built by `load` or `load_inline`
takes tensors past torch: it is replaced in its module. Only what is imported already is looked at.
"""

from __future__ import annotations

import gc
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal, Protocol

import torch

from .kernel_source import accesses
from .operations import written_by

RUNS = (
    ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.interpreter", "InterpretedFunction"),
)


OWN = frozenset(("aten", "prim", "prims", "quantized", "profiler", "c10d"))
"""Namespaces of torch's operators."""


class Sees(Protocol):
    """What is called in place of a launch."""

    def __call__(self, seen: Seen) -> Any: ...


class Seen:
    """A launch that is about to happen."""

    language: Literal["triton", "extension"] = "extension"
    num_warps: int | None = None
    num_stages: int | None = None
    grid: tuple[int, ...] = ()
    function: Any = None
    """The Python function of a kernel."""

    def __init__(self, name: str, arguments: dict[str, Any], launch: Callable[[], Any]):
        self.name, self.launch = name, launch
        self.arguments = arguments
        self.constants: dict[str, Any] = {}
        self.access(self.pointers, self.pointers, is_sure=False)

    @property
    def pointers(self) -> set[str]:
        """Return the names of the arguments that are or hold tensors."""
        return {name for name, one in self.arguments.items() if tensors_in(one)}

    def access(self, reads: set[str], writes: set[str], *, is_sure: bool) -> None:
        """Keep what is read and written, in the order of the arguments."""
        self.reads = tuple(one for one in self.arguments if one in reads)
        self.writes = tuple(one for one in self.arguments if one in writes)
        self.is_sure = is_sure

    @property
    def kernel(self) -> str:
        """Return its name without where it is from."""
        return self.name.rpartition(":")[2]

    def written(self) -> list[torch.Tensor]:
        """Return the tensors that it may write."""
        return [one for name in self.writes for one in tensors_in(self.arguments[name])]


class SeenOperator(Seen):
    """A call of an operator of `torch.ops`. Its schema says what it writes."""

    def __init__(
        self,
        operator: torch._ops.OpOverload,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ):
        names = [one.name for one in operator._schema.arguments]
        named = dict(zip(names, args, strict=False)) | kwargs
        super().__init__(operator._schema.name, named, lambda: function(*args, **kwargs))
        written = {id(one) for one in written_by(operator, args, kwargs)}
        writes = {name for name, one in named.items() if id(one) in written} & self.pointers
        self.access(self.pointers, writes, is_sure=True)


def operator_of(function: Callable[..., Any]) -> torch._ops.OpOverload | None:
    """Return the operator of a user's library that a function is; None for torch's own, and where
    it has several schemas."""
    found: Any = function
    if isinstance(found, torch._ops.OpOverloadPacket) and len(found._overload_names) == 1:
        found = getattr(found, found._overload_names[0])
    if not isinstance(found, torch._ops.OpOverload) or found.namespace in OWN:
        return None
    return found


class SeenTriton(Seen):
    """A launch of a Triton kernel."""

    language = "triton"

    def __init__(self, kernel: Any, run: Callable[..., Any], args: Any, kwargs: dict[str, Any]):
        self.function = kernel.fn
        given = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
        parameters = inspect.signature(kernel.fn).parameters
        for name, one in parameters.items():
            if one.default is not inspect.Parameter.empty:
                given.setdefault(name, one.default)
        arguments = {name: plain(given[name]) for name in parameters if name in given}
        super().__init__(f"triton:{kernel.fn.__name__}", arguments, self.run)
        for name, one in parameters.items():
            if "constexpr" in str(one.annotation) and name in self.arguments:
                self.constants[name] = self.arguments.pop(name)
        self.call = run, kernel, args, kwargs
        self.num_warps, self.num_stages = kwargs.get("num_warps"), kwargs.get("num_stages")
        shown = accesses(source_of(kernel.fn), self.pointers)
        self.access(shown.reads, shown.writes, is_sure=shown.is_sure)

    def run(self) -> Any:
        """Launch, and keep the grid and what the compiler chose."""
        run, kernel, args, kwargs = self.call
        grid: Any = kwargs.get("grid")

        def kept(given: Any) -> Any:
            found = grid(given) if callable(grid) else grid
            self.grid = tuple(int(one) for one in found)
            return found

        made = run(kernel, *args, **kwargs | {"grid": kept})
        chosen = getattr(made, "metadata", None)
        self.num_warps = getattr(chosen, "num_warps", self.num_warps)
        self.num_stages = getattr(chosen, "num_stages", self.num_stages)
        return made


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument or result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value if isinstance(value, (list, tuple)) else ()
    return [tensor for one in items for tensor in tensors_in(one)]


def plain(value: Any) -> Any:
    """Return the tensor of a tensor descriptor, and the number of a `tl.constexpr`."""
    kind = type(value).__name__
    if kind == "TensorDescriptor":
        return getattr(value, "base", value)
    return getattr(value, "value", value) if kind == "constexpr" else value


def source_of(function: FunctionType) -> str | None:
    """Return the source of a kernel; None where it is not known."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return None


@contextmanager
def watched(sees: Sees) -> Iterator[None]:
    """Let `sees` launch kernels and call extensions in their place."""
    replaced: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, new: Any) -> None:
        replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, new)

    try:
        for module, kind in RUNS:
            owner = getattr(sys.modules.get(module), kind, None)
            if owner is not None and "run" in vars(owner):
                replace(owner, "run", triton_run(vars(owner)["run"], sees))
        for extension in extensions():
            for name, function in [*vars(extension).items()]:
                if isinstance(function, BuiltinFunctionType) and not name.startswith("_"):
                    replace(extension, name, extension_function(extension, function, sees))
        yield
    finally:
        for owner, name, old in reversed(replaced):
            setattr(owner, name, old)


def triton_run(run: Callable[..., Any], sees: Sees) -> Callable[..., Any]:
    """Return what takes the place of a kernel's `run`."""

    def watched_run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup"):
            return run(kernel, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            seen = SeenTriton(kernel, run, args, kwargs)
        return sees(seen)

    return watched_run


def extension_function(
    module: ModuleType, function: BuiltinFunctionType, sees: Sees
) -> Callable[..., Any]:
    """Return what takes the place of a function of an extension."""

    def watched_function(*args: Any, **kwargs: Any) -> Any:
        named = {f"arg{number}": one for number, one in enumerate(args)} | kwargs
        name = f"{module.__name__}:{function.__name__}"
        with torch._C.DisableTorchFunction():
            seen = Seen(name, named, lambda: function(*args, **kwargs))
        return sees(seen)

    return watched_function


def extensions() -> list[ModuleType]:
    """Return the compiled modules that are not installed: those that were built for the call."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = tuple(sysconfig.get_path(one) for one in kinds)
    return [
        one
        for one in gc.get_objects()
        if type(one) is ModuleType
        and isinstance(path := vars(one).get("__file__"), str)
        and path.endswith((".so", ".pyd"))
        and not path.startswith(installed)
        and "site-packages" not in path
    ]
