"""Describe what one file contains, before the other files are known.

Facts are read file by file, in several processes, which exchange them as MessagePack: small tuples
of strings and numbers, no syntax trees. `python_targets.py` and `cuda_targets.py` turn the facts of
all files into targets. Lines are 1-based and inclusive. A definition's first line is that of its
decorators.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Fact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Serve as the base of all facts; facts have no cycles, so the garbage collector skips them."""


class Binding(Fact, frozen=True, array_like=True, gc=False):
    """Describe what a module-level name may refer to.

    `import a.b as n` is `("a.b", None)`, `from .a import b` is `(".a", "b")`, and `n = nn.Linear`
    is `("", "nn.Linear")`, to be looked up in the same file.
    """

    module: str
    name: str | None


ForwardKind = Literal["none", "own", "abstract"]


class ClassFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe a class that can be imported (not one defined inside a function)."""

    qualname: str
    first_line: int
    last_line: int
    bases: tuple[str, ...]
    """Dotted, as written: `nn.Module`."""
    forward: ForwardKind
    """`abstract`: its body is a docstring, `pass` or `raise NotImplementedError`."""
    methods: tuple[str, ...]
    calls_on_self: tuple[str, ...]
    """Names called as `self.name(...)`: overriding one of them changes what a subclass does."""
    assembles: bool
    """Its `__init__` sets attributes: other parts than its base's."""
    acts_as_module: bool
    """Looks like an nn.Module, whatever the name of its base."""


class FunctionFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe a free function that computes with tensors."""

    qualname: str
    first_line: int
    last_line: int


class TritonFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe a `@triton.jit` function; one that only others call is no kernel."""

    qualname: str
    first_line: int
    last_line: int
    calls: tuple[str, ...]
    """Names that its body mentions, dotted, as written."""


class LaunchFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe `kernel[grid](...)`, or a kernel mentioned by a function that launches something."""

    launcher: str
    """Qualname of the function or method; `<module>` at module level."""
    kernel: str
    """Dotted, as written."""
    arguments: tuple[str, ...] = ()
    """Names among what it is launched with, dotted, as written: one may be of a function that the
    kernel calls, `ACTIVATION=relu`."""


class CudaKernelFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe a `__global__` function with a body."""

    qualname: str
    first_line: int
    last_line: int
    launchers: tuple[str, ...] = ()
    """For a kernel in a Python string: qualnames in the same file that use the string."""


class HostFunctionFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe a C++ function and its identifiers, which include the kernels that it launches."""

    qualname: str
    mentions: tuple[str, ...]


class CudaBindingFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe `m.def("scale", &scale_cuda)` or `m.impl(...)`: Python name and C++ function."""

    name: str
    """`scale` for pybind, `ops::scale` for a TORCH_LIBRARY named `ops`."""
    function: str


class ExtensionFact(Fact, frozen=True, array_like=True, gc=False):
    """Describe `load(sources=[...])` or `CUDAExtension(...)`, which build C++ and CUDA files."""

    qualname: str
    """The function or variable that holds it; `<module>` when there is none."""
    sources: tuple[str, ...]
    """The strings of the call that end like a source file."""
    is_installed: bool = False
    """Built when the package is installed (`CUDAExtension`), and not when it is used."""


class FileFacts(Fact, frozen=True, array_like=True, gc=False):
    """Hold all that discovery keeps of a file."""

    path: str
    digest: str
    """Hash of the file's bytes."""
    is_parsed: bool = False
    """False for a file that mentions nothing that could make it interesting."""
    message: str | None = None
    """Why the file could not be read."""
    possible_bases: tuple[str, ...] = ()
    """Of a file that is not parsed: last names of the bases of its classes."""
    names: tuple[str, ...] = ()
    """All that the module level defines: functions, classes, constants."""
    bindings: dict[str, tuple[Binding, ...]] = {}
    dotted_imports: tuple[str, ...] = ()
    """`a.b.c` of `import a.b.c`, which binds `a` alone."""
    star_imports: tuple[str, ...] = ()
    classes: tuple[ClassFact, ...] = ()
    functions: tuple[FunctionFact, ...] = ()
    triton_kernels: tuple[TritonFact, ...] = ()
    launches: tuple[LaunchFact, ...] = ()
    cuda_kernels: tuple[CudaKernelFact, ...] = ()
    host_functions: tuple[HostFunctionFact, ...] = ()
    cuda_bindings: tuple[CudaBindingFact, ...] = ()
    extensions: tuple[ExtensionFact, ...] = ()
