"""Pose a problem of two pieces of code that Python can import: `file.py:Name`, or two functions.

    problem, candidate = functions_pair(slow, fast, (torch.randn(8, 16),))
    session.evaluate(problem, candidate)

Functions are sent by name: the processes that run them import them again. Inputs are sent as
shapes, dtypes and ranges, because the verifier draws new values for each check.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudal1_ci.discover import Discovery, reference_program
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import (
    ArgumentSpec,
    Call,
    Candidate,
    Constant,
    Items,
    OverlayFile,
    Problem,
    Target,
    TensorSpec,
    TreeProgram,
    Workload,
    content_hash,
)

PLAIN = (bool, int, float, str, type(None))
Inputs = Sequence[Any] | Mapping[str, Any]


def named_target(root: Path, path: str, qualname: str) -> Target:
    """Return the class or function of a file as a target.

    Raises: ConfigError, with the names that the file has.
    """
    try:
        body = ast.parse((root / path).read_text(encoding="utf-8-sig")).body
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as Python: {error}") from error
    nodes: dict[str, ast.ClassDef | ast.FunctionDef] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            nodes[node.name] = node
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, ast.ClassDef))
            nodes.update({f"{node.name}.{one.name}": one for one in inner})
    found = nodes.get(qualname)
    if found is None:
        has = ", ".join(nodes) or "no class or function"
        raise ConfigError(f"{path}: no class or function `{qualname}`; there is {has}")
    return Target(
        path=path,
        qualname=qualname,
        kind="torch_module" if isinstance(found, ast.ClassDef) else "torch_function",
        first_line=found.lineno,
        last_line=found.end_lineno or found.lineno,
    )


def named_candidate(
    problem: Problem, root: Path, path: str, qualname: str, discovery: Discovery
) -> Candidate:
    """Return a class or function of a tree as a candidate.

    Raises: ConfigError, DiscoveryError.
    """
    program = reference_program(root, named_target(root, path, qualname), discovery)
    return candidate_in(problem, program, path)


def candidate_in(problem: Problem, program: TreeProgram, path: str) -> Candidate:
    """Return a program of a tree as a candidate. Its file lies over itself as a new one, so that
    the static rules read all of it."""
    text = (Path(program.root) / path).read_text(encoding="utf-8-sig")
    overlay = (OverlayFile(path=path, text=text),)
    return Candidate(
        problem_id=problem.id,
        program=TreeProgram(
            root=program.root,
            import_root=program.import_root,
            import_path=program.import_path,
            digest=program.digest,
            overlay=overlay,
        ),
        proposer="file",
    )


def functions_pair(
    reference: Callable[..., Any], candidate: Callable[..., Any], inputs: Inputs, mode: str
) -> tuple[Problem, Candidate]:
    """Return the problem that a function poses under inputs, and another function as a candidate.

    Raises: ConfigError for what cannot be imported by name and inputs that cannot be described.
    """
    program, _ = function_program(reference)
    workload = Workload(
        name="default",
        provenance="declared",
        source="inputs",
        call=call_of(inputs),
        mode="train" if mode == "train" else "infer",
    )
    problem = Problem(reference=program, workloads=(workload,))
    faster, path = function_program(candidate)
    return problem, candidate_in(problem, faster, path)


def function_program(function: Callable[..., Any]) -> tuple[TreeProgram, str]:
    """Return a function's program, and its file below the program's root.

    Raises: ConfigError, with the reason why another process cannot import it.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function):
        raise ConfigError(
            f"verify: expected a function, got {name}; for a class run "
            "`cudal1-ci verify model.py:Slow model.py:Fast`"
        )
    if function.__closure__ or "<" in name:
        raise ConfigError(
            f"verify: `{name}` is a closure, a lambda or made inside a function, and another "
            "process cannot import it; move it to the top level of a file"
        )
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if function.__module__ == "__main__" or file is None:
        raise ConfigError(
            f"verify: `{name}` is defined in {function.__module__}, which another process cannot "
            "import; move it to a file of its own and import it from there"
        )
    if vars(module).get(name) is not function:
        raise ConfigError(
            f"verify: `{function.__module__}.{name}` is another object than the one given; pass "
            "the function under the name that it is imported by"
        )
    place = Path(file).resolve()
    parts = function.__module__.split(".")
    root = place.parents[len(parts) - (0 if place.name == "__init__.py" else 1)]
    path = place.relative_to(root).as_posix()
    program = TreeProgram(
        root=str(root),
        import_root=".",
        import_path=f"{function.__module__}:{name}",
        digest=content_hash(place.read_text(encoding="utf-8-sig")),
    )
    return program, path


def call_of(inputs: Inputs) -> Call:
    """Describe the arguments of a call: a sequence, or a mapping for keyword arguments.

    Raises: ConfigError that names the argument.
    """
    if isinstance(inputs, Mapping):
        return Call(kwargs={name: described(one, name) for name, one in inputs.items()})
    if is_tensor(inputs) or not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise ConfigError("verify: inputs must be a list or tuple of arguments, or a dict of them")
    return Call(args=tuple(described(one, f"inputs[{n}]") for n, one in enumerate(inputs)))


def described(value: Any, where: str) -> ArgumentSpec:
    """Describe one argument. Raises: ConfigError."""
    if is_tensor(value):
        return tensor_spec(value)
    if isinstance(value, PLAIN) and not (isinstance(value, float) and not math.isfinite(value)):
        return Constant(value=value)
    if isinstance(value, list | tuple):
        items = tuple(described(one, f"{where}[{n}]") for n, one in enumerate(value))
        return Items(items=items, container=type(value).__name__)
    raise ConfigError(
        f"verify: {where}: expected a tensor, a number, text, True, False, None, or a list or "
        f"tuple of those, got {type(value).__name__}"
    )


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_spec(tensor: Any) -> TensorSpec:
    """Describe a tensor by what the verifier draws others from."""
    low = high = None
    has_range = tensor.numel() and not tensor.is_complex() and str(tensor.dtype) != "torch.bool"
    if has_range:
        low, high = float(tensor.min()), float(tensor.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            low = high = None
    return TensorSpec(
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        stride=None if tensor.is_contiguous() else tuple(tensor.stride()),
        device=tensor.device.type,
        low=low,
        high=high,
        requires_grad=bool(tensor.requires_grad),
    )
