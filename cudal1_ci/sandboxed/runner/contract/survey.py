"""Report how a program may be used: its signature, its constructor, its parts, its text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ...wire.arguments import Call
from ...wire.runner import Parameter, Plain, Submodule, Survey, Surveyed
from ..arguments import build_call
from ..subject import Subject
from .trial import Trial, given_of

WORD = re.compile(r"""(["'])([A-Za-z][\w.-]{0,30})\1""")
MOST_WORDS = 64
GRAPHS = re.compile(r"\b(create_graph|hessian|jvp|gradgradcheck|torch\.func)\b")
CHECKS = re.compile(r"^\s*(raise|assert)\b", re.MULTILINE)
KINDS = {"_BatchNorm": "batch_norm", "_DropoutNd": "dropout", "_InstanceNorm": "batch_norm"}


def surveyed(subject: Subject, request: Survey) -> Surveyed:
    """Return what the program's signature and one call show."""
    trial = Trial(subject, request.sets, request.call)
    args, kwargs = trial.given_arguments(0)
    assert subject.loaded is not None
    slots = [subject.segments["init"].tensor(slot).clone() for slot in subject.loaded.init_slots]
    init_args, init_kwargs = build_call(subject.loaded.init or Call(), slots)
    is_class = isinstance(subject.found, type)
    heirs: list[type] = type.__subclasses__(subject.found) if is_class else []
    text, file = source_of(subject.found), source_of(inspect.getmodule(subject.found))
    words = dict.fromkeys(match.group(2) for match in WORD.finditer(text))
    return Surveyed(
        arguments=tuple(parameters(callable_of(subject.program), args, kwargs)),
        init=tuple(parameters(subject.found, init_args, init_kwargs)) if is_class else (),
        tensors=tuple(tensor_names(subject.program, args, kwargs, trial.sets[0])),
        submodules=tuple(submodules(subject.module)),
        attributes=tuple(changed_attributes(trial)),
        words=tuple(words)[:MOST_WORDS],
        is_module=subject.module is not None,
        is_class=is_class,
        mentions_hooks="_hook" in file,
        replaces_submodules=any(names_a_part(subject.module, one) for one in heirs),
        mentions_graphs=GRAPHS.search(file) is not None,
        mentions_checks=CHECKS.search(file) is not None,
    )


def names_a_part(module: torch.nn.Module | None, heir: type) -> bool:
    """Return whether the constructor of a subclass names a submodule, as one that replaces it
    does."""
    code = getattr(vars(heir).get("__init__"), "__code__", None)
    return code is not None and module is not None and bool(module._modules.keys() & code.co_names)


def callable_of(program: Any) -> Any:
    """Return what states the arguments of a call."""
    return program.forward if isinstance(program, torch.nn.Module) else program


def source_of(found: Any) -> str:
    """Return the text of a class, a function or a module; empty where there is none."""
    try:
        return inspect.getsource(found)
    except (OSError, TypeError):
        return ""


def parameters(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Parameter]:
    """Yield the arguments by signature; those that no signature names by number."""
    given = given_of(function, args, kwargs)
    try:
        known = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        known = {}
    for name, value in given.items():
        default = known[name].default if name in known else inspect.Parameter.empty
        yield parameter(name, value, True, default is not inspect.Parameter.empty)
    for name, one in known.items():
        is_named = one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if name not in given and is_named and one.default is not one.empty:
            yield parameter(name, one.default, False, True)


def parameter(name: str, value: Any, is_given: bool, has_default: bool) -> Parameter:
    is_plain = value is None or type(value) in (bool, int, float, str)
    plain: Plain = value if is_plain else None
    if isinstance(value, torch.Tensor):
        kind = "tensor"
    elif isinstance(value, list | tuple | dict):
        kind = "container"
    else:
        kind = "plain" if is_plain else "other"
    return Parameter(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        value=plain,
        is_given=is_given,
        has_default=has_default,
        holds_value=is_plain,
    )


def tensor_names(
    program: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
) -> list[str]:
    """Return the name of each tensor of a call, by where it is found."""
    found: dict[int, str] = {}
    for name, value in given_of(callable_of(program), args, kwargs).items():
        for path, tensor in places(value, name, 0):
            found.setdefault(id(tensor), path)
    return [found.get(id(one), f"tensor {number}") for number, one in enumerate(tensors)]


def places(value: Any, path: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors inside of a value, with their paths."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 4:
        return
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from places(one, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from places(one, f"{path}[{number}]", depth + 1)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for key, one in vars(value).items():
            yield from places(one, f"{path}.{key}", depth + 1)


def submodules(module: torch.nn.Module | None) -> Iterator[Submodule]:
    """Yield the submodules that a line of the contract may be about."""
    if module is None:
        return
    for name, one in module.named_modules():
        kinds = {kind.__name__ for kind in type(one).__mro__}
        kind = next((word for base, word in KINDS.items() if base in kinds), "")
        rows = one.num_embeddings if isinstance(one, torch.nn.Embedding) else 0
        yield Submodule(name=name, kind=kind or type(one).__name__, num_rows=rows)


def changed_attributes(trial: Trial) -> list[str]:
    """Return public attributes of the module that a call sets to another object."""
    module = trial.subject.module
    if module is None:
        return []
    before = dict(vars(module))
    trial.call()
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (name not in before or before[name] is not value)
        and name != "training"
        and isinstance(value, torch.Tensor | int | float | str | list | tuple | dict | type(None))
    ]
