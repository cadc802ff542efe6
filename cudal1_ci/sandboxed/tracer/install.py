"""Hook torch and Triton at their import, and functions at the import of their files.

`nn.Module.__new__` sees constructor arguments, `nn.Module.__call__` the calls with their keyword
arguments. `KernelInterface.__getitem__` sees the launches `kernel[grid](...)`. Their time is that
of the launch and not of the kernel. Compiling, scripting and symbolic tracing are not touched.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .record import Log, OwnFile, Root


def install(folder: Path, root: Path, functions_file: Path) -> None:
    """Start to record calls of the checkout at `root` into `folder`."""
    listed: dict[str, list[str]] = json.loads(functions_file.read_text(encoding="utf-8"))
    file = OwnFile(folder)
    begin(lambda: Log(file, file.renew), root, listed)


def begin(log: Callable[[], Log], root: Path, listed: Mapping[str, Sequence[str]]) -> None:
    """Start to record calls of the checkout at `root`, once torch is there, into a log."""
    functions = {os.path.realpath(root / path): list(names) for path, names in listed.items()}
    libraries: dict[str, Callback] = {
        "torch": lambda _: start(log, root),
        "triton.runtime.jit": wrap_launches,
    }
    sys.meta_path.insert(0, Finder(functions, libraries))
    for name, callback in libraries.items():
        if name in sys.modules:
            callback(sys.modules[name])


Callback = Callable[[types.ModuleType], None]


class Finder(importlib.abc.MetaPathFinder):
    """Find modules as the other finders do, also those of editable installs and of pytest. Call
    back after some modules were executed."""

    def __init__(self, functions: dict[str, list[str]], libraries: dict[str, Callback]):
        self.functions = functions
        self.libraries = libraries
        # A cheap first check, as every import of the process comes here.
        self.last_names = {name for path in functions for name in names_of_file(path)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_library = fullname in self.libraries
        if not is_library and fullname.rpartition(".")[2] not in self.last_names:
            return None
        spec = self.found_by_others(fullname, path, target)
        if spec is None or spec.loader is None or spec.origin is None:
            return None
        if is_library:
            spec.loader = After(spec.loader, self.libraries[fullname])
            return spec
        names = self.functions.get(os.path.realpath(spec.origin))
        if names is None:
            return None
        spec.loader = After(spec.loader, functools.partial(wrap_functions, names=names))
        return spec

    def found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


def names_of_file(path: str) -> tuple[str, ...]:
    """Return the last name of a file's module; for an `__init__.py` that of its folder."""
    stem = Path(path).stem
    return (Path(path).parent.name, stem) if stem == "__init__" else (stem,)


class After(importlib.abc.Loader):
    """A loader that calls back when its module was executed."""

    def __init__(self, inner: Any, callback: Callable[[types.ModuleType], None]):
        self.inner = inner
        self.callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self.inner.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        self.inner.exec_module(module)
        self.callback(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True)
class RootCall:
    """A call that no other recorded one contains."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    elapsed_s: float


class Tracer:
    """Record calls. There is one tracer a process, made when torch is there."""

    def __init__(self, log: Log, root: Path):
        import torch

        from . import describe

        self.torch = torch
        self.describe = describe
        self.log = log
        self.provenance: str | None = None
        self.source: str | None = None
        """Of the calls that are made now, where a script of the checkout is run."""
        self.roots: dict[Any, RootCall] | None = None
        """By key, the last such root call, where they are kept."""
        self.root = os.path.realpath(root) + os.sep
        self.places: dict[type, str | None] = {}
        self.local = threading.local()
        functorch = getattr(torch._C, "_functorch", None)
        self.transform_level = getattr(functorch, "maybe_current_level", lambda: None)
        atexit.register(self.log.flush)

    def place(self, cls: type) -> str | None:
        """Return `path:Qual.Name` of a class of the checkout; None for others."""
        if cls not in self.places:
            self.places[cls] = place_of(cls, self.root)
        return self.places[cls]

    def is_quiet(self) -> bool:
        """Return whether calls are not recorded now. That is while torch is tracing, compiling
        or inside a transform (vmap, grad), whose tensors cannot be made again, or while a call
        is being described."""
        torch = self.torch
        return (
            getattr(self.local, "is_busy", False)
            or torch.compiler.is_compiling()
            or torch.jit.is_tracing()
            or torch.jit.is_scripting()
            or self.transform_level() is not None
        )

    def made(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the constructor arguments of a module, or why they cannot be recorded."""
        self.local.is_busy = True
        try:
            made = self.describe.describe_call(args, kwargs)
            module.__dict__[self.describe.INIT] = made
            # Made once: every call needs a key.
            module.__dict__[self.describe.INIT_KEY] = hash(repr(made))
        except self.describe.UnrecordableError as error:
            module.__dict__[self.describe.INIT] = f"constructor {error}"
        except Exception as error:  # noqa: BLE001 (the user's command must not notice)
            module.__dict__[self.describe.INIT] = f"constructor: {type(error).__name__}: {error}"
        finally:
            self.local.is_busy = False

    def call(
        self,
        target: str,
        owner: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call and record it, where it returns. `owner` is the module, None for a
        function."""
        key = self.key(target, owner, args, kwargs)
        is_first = not self.log.knows(key)
        if is_first:
            self.log.add(key, self.described(target, owner, args, kwargs))
        local = self.local
        outer_s = getattr(local, "inner_s", 0.0)
        outer_root = root = getattr(local, "root", None)
        if root is None and owner is not None:
            trains = owner.training and self.torch.is_grad_enabled()
            root = local.root = Root(target + (" train" if trains else ""), is_first)
        local.inner_s = 0.0
        start_s = time.perf_counter()
        try:
            result = function(*args, **kwargs)
            elapsed_s = time.perf_counter() - start_s
            self.log.count(key, elapsed_s - local.inner_s, root)
        finally:
            local.inner_s = outer_s + time.perf_counter() - start_s
            local.root = outer_root
        if self.roots is not None and outer_root is None and owner is not None:
            self.roots[key] = RootCall(owner, args, kwargs, elapsed_s)
        return result

    def stepped(self, optimizer: Any) -> None:
        """Record a step of an optimizer. On a GPU it is over when the device is done."""
        if self.torch.compiler.is_compiling():
            return
        try:
            cuda = self.torch.cuda
            device = None
            if cuda.is_initialized():
                if cuda.is_current_stream_capturing():
                    return  # nothing runs, and a wait would break the capture
                cuda.synchronize()
                device = cuda.get_device_name()
            self.log.step(optimizer, device)
        except Exception:  # noqa: BLE001 (the user's command must not notice)
            return

    def key(
        self, target: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Return a key that is cheap and differs for calls whose records differ."""
        tensor = self.torch.Tensor

        def short(value: Any) -> Any:
            if isinstance(value, tensor):
                return (tuple(value.shape), value.dtype, value.requires_grad)
            if isinstance(value, list | tuple):
                return tuple(short(item) for item in value)
            return value if isinstance(value, bool | int | float | str) else type(value)

        init = None if owner is None else owner.__dict__.get(self.describe.INIT_KEY)
        training = owner is not None and owner.training
        return (
            target,
            init,
            training and self.torch.is_grad_enabled(),
            self.torch.get_default_dtype(),
            None if owner is None else self.describe.first_dtype(owner),
            self.describe.autocast_dtype(owner, args, kwargs),
            tuple(short(arg) for arg in args),
            tuple((name, short(value)) for name, value in kwargs.items()),
        )

    def described(
        self, target: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a line of the trace."""
        init = None if owner is None else owner.__dict__.get(self.describe.INIT)
        trains = self.torch.is_grad_enabled() and (owner is None or owner.training)
        tensors = [arg for arg in args if isinstance(arg, self.torch.Tensor)]
        has_grad = owner is not None or any(tensor.requires_grad for tensor in tensors)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or None
        line: dict[str, Any] = {
            "target": target,
            "mode": "train" if trains and has_grad else "infer",
            "source": test or self.source,
            "provenance": "benchmark" if is_benchmark() else self.provenance or "traced",
        }
        self.local.is_busy = True
        try:
            line |= self.describe.describe_floats(owner)
            cast = self.describe.autocast_dtype(owner, args, kwargs)
            if cast is not None:
                line["autocast"] = str(cast).removeprefix("torch.")
            if owner is not None and not isinstance(init, dict):
                raise self.describe.UnrecordableError(init or "constructor was not seen")
            line["call"] = self.describe.describe_call(args, kwargs)
            line["init"] = init
        except self.describe.UnrecordableError as error:
            line["reason"] = str(error)
        except Exception as error:  # noqa: BLE001 (the user's command must not notice)
            line["reason"] = f"{type(error).__name__}: {error}"[:300]
        finally:
            self.local.is_busy = False
        return line


BENCHMARKS = {
    "pytest_benchmark.fixture": None,
    "pytest_codspeed.plugin": ("__call__", "pedantic", "_measure"),
    "triton.testing": None,
}
"""Modules, and their functions that call what is benchmarked; None is all functions."""


def is_benchmark() -> bool:
    """Return whether pytest-benchmark, pytest-codspeed or Triton's benchmark is on the stack."""
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in BENCHMARKS:
            functions = BENCHMARKS[module]
            if functions is None or frame.f_code.co_name in functions:
                return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def place_of(cls: type, root: str) -> str | None:
    """Return the place of a class in the checkout; None when it is not there or cannot be
    imported."""
    if "<" in cls.__qualname__ or cls.__module__ == "__main__":
        return None
    try:
        file = os.path.realpath(inspect.getfile(cls))
    except (TypeError, OSError):
        return None
    if not file.startswith(root) or "site-packages" in file[len(root) :]:
        return None
    return f"{file[len(root) :]}:{cls.__qualname__}"


current: Tracer | None = None


def start(log: Callable[[], Log], root: Path) -> None:
    """Patch torch.nn.Module, once."""
    global current
    if current is not None:
        return
    tracer = Tracer(log(), root)
    module_class = tracer.torch.nn.Module
    original = module_class.__call__

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        module: Any = object.__new__(cls)
        if not getattr(tracer.local, "is_busy", False):
            tracer.made(module, args, kwargs)
        return module

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracer.is_quiet():
            return original(self, *args, **kwargs)
        target = tracer.place(type(self))
        if target is None:
            return original(self, *args, **kwargs)
        return tracer.call(target, self, functools.partial(original, self), args, kwargs)

    module_class.__new__ = staticmethod(new)
    module_class.__call__ = call
    # torch.optim hides the module itself; a torch without the hook has no steps in its traces.
    optimizers = sys.modules.get("torch.optim.optimizer")
    hook = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if hook is not None:
        hook(lambda optimizer, *_: tracer.stepped(optimizer))
    current = tracer


def wrap_functions(module: types.ModuleType, names: list[str]) -> None:
    """Replace each listed function of a module with a recording one."""
    for name in names:
        function = module.__dict__.get(name)
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            module.__dict__[name] = recording(function)


def recording(function: types.FunctionType) -> Callable[..., Any]:
    """Return a function that records its calls, also those of one that is decorated."""
    inside = inspect.unwrap(function)
    if not isinstance(inside, types.FunctionType):
        return function

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tracer = current
        if tracer is None or tracer.is_quiet():
            return function(*args, **kwargs)
        file = os.path.realpath(inside.__code__.co_filename)
        if not file.startswith(tracer.root):
            return function(*args, **kwargs)
        target = f"{file[len(tracer.root) :]}:{function.__qualname__}"
        return tracer.call(target, None, function, args, kwargs)

    return wrapped


def wrap_launches(module: types.ModuleType) -> None:
    """Record the launches of Triton kernels of the checkout; `module` is triton.runtime.jit."""
    interface: Any = module.__dict__.get("KernelInterface")
    if interface is None:
        return
    original = interface.__getitem__

    @functools.wraps(original)
    def launcher(self: Any, grid: Any) -> Any:
        launch = original(self, grid)
        tracer = current
        target = None if tracer is None else place_of_kernel(self, tracer.root)
        if tracer is None or target is None:
            return launch

        @functools.wraps(launch)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if tracer.is_quiet():
                return launch(*args, **kwargs)
            return tracer.call(target, None, launch, args, kwargs)

        return recorded

    interface.__getitem__ = launcher


def place_of_kernel(kernel: Any, root: str) -> str | None:
    """Return `path:name` of a kernel of the checkout, below its autotuners and heuristics."""
    function = kernel
    while not isinstance(function, types.FunctionType):
        function = getattr(function, "fn", None)
        if function is None:
            return None
    file = os.path.realpath(function.__code__.co_filename)
    if not file.startswith(root):
        return None
    return f"{file[len(root) :]}:{function.__qualname__}"
