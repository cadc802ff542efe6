"""Hold one trial of a contract: its inputs, its module, and what it came to."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from ...memory.segment import dtype_of, slot_of
from ...wire.arguments import Call, GivenCall, Pickled
from ...wire.runner import LaidSet, Tried, Try
from ...wire.tensors import OutputSlot, StateSlot
from ..arguments import build_call, drained, flatten, with_iterators
from ..autocast import Autocast
from ..subject import Subject, plain, seed_all

OMITTED = object()
"""Stands for an argument that is not given."""


def tried(subject: Subject, request: Try) -> Tried:
    """Carry out a trial. What it raises is its failure."""
    from .recipes import RECIPES  # few runners try contracts

    default = torch.get_default_dtype()
    seed_all(request.seed)
    before = subject.rng_state()
    try:
        if request.is_wide:
            torch.set_default_dtype(torch.float64)
        trial = Trial(
            subject,
            request.sets,
            request.call,
            request.state,
            request.is_new,
            request.is_wide,
            request.seed,
        )
        seed_all(request.seed)
        before = subject.rng_state()
        RECIPES[request.recipe](trial, request.target, request.value)
        subject.synchronize()
    finally:
        torch.set_default_dtype(default)
    subject.kept = [trial.kept]
    return Tried(
        facts=tuple(trial.facts),
        names=tuple(trial.names),
        slots=tuple(map(slot_to_copy, trial.kept)),
        used_rng=not torch.equal(before, subject.rng_state()),
        growth=tuple(trial.growth),
    )


def slot_to_copy(tensor: torch.Tensor) -> OutputSlot:
    """Return the place for a tensor of a trial. Its strides are no part of it."""
    slot = slot_of(tensor)
    return OutputSlot(**vars(slot), device=tensor.device.type, own_stride=slot.stride)


class Trial:
    """The means of a recipe: a module, calls of it, and a record of what they came to."""

    def __init__(
        self,
        subject: Subject,
        sets: Sequence[LaidSet],
        call: GivenCall,
        state: Sequence[StateSlot] = (),
        is_new: bool = False,
        is_wide: bool = False,
        seed: int = 0,
    ):
        self.subject, self.seed = subject, seed
        self.given, self.data = call, [one.data for one in sets]
        self.state, self.is_wide = state, is_wide
        self.sets = [
            [self.read(subject.segments["inputs"].tensor(slot)) for slot in one.slots]
            for one in sets
        ]
        self.edits: dict[str, Any] = {}
        """Values of arguments in place of the given ones."""
        self.casts: Autocast = subject.autocast
        """What calls are made under, but for those of an oracle."""
        self.program = self.constructed({}) if is_new else subject.program
        self.facts: list[tuple[str, str]] = []
        self.names: list[str] = []
        self.kept: list[torch.Tensor] = []
        self.growth: list[float] = []

    @property
    def module(self) -> torch.nn.Module:
        """Return the program, which must be a module."""
        assert isinstance(self.program, torch.nn.Module)
        return self.program

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of an input, in float64 for an oracle."""
        copy = tensor.clone()
        return copy.double() if self.is_wide and copy.is_floating_point() else copy

    # --- the module ----------------------------------------------------------------------------

    def constructed(self, edits: Mapping[str, Any]) -> Any:
        """Return the program constructed again, with other arguments where there are edits, and
        with the weights of the case."""
        subject, found = self.subject, self.subject.found
        if not isinstance(found, type):
            return found
        assert subject.loaded is not None
        seed_all(subject.loaded.seed)
        slots = [
            subject.segments["init"].tensor(slot).clone() for slot in subject.loaded.init_slots
        ]
        args, kwargs = build_call(subject.loaded.init or Call(), slots)
        args, kwargs = edited(found, args, kwargs, edits)
        program = self.on_the_device(found, args, kwargs) if not edits else None
        if program is None:
            seed_all(subject.loaded.seed)
            program = found(*args, **kwargs)
        if isinstance(program, torch.nn.Module):
            program = program.to(subject.device).train(subject.train)
            self.load_weights(program)
            if self.is_wide:
                program.double()
        return program

    def on_the_device(
        self, found: type, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> torch.nn.Module | None:
        """Return a module whose weights are drawn on the GPU, as others are loaded into it; None
        where it cannot be, or holds tensors that are no state and lie on the CPU. On the CPU the
        draws take most of the time of a large module."""
        subject = self.subject
        if (
            subject.device.type == "cpu"
            or subject.module is None
            or has_cpu_tensors(subject.module)
        ):
            return None
        try:
            with subject.device:
                program = found(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a constructor may compute with arrays of numpy
            return None
        return program if isinstance(program, torch.nn.Module) else None

    def load_weights(self, module: torch.nn.Module) -> None:
        """Load the weights of the case as a checkpoint is. A parameter of another shape gets
        numbers that depend on its name and shape alone."""
        given = {slot.key: self.subject.segments["state"].tensor(slot) for slot in self.state}
        own = module.state_dict(keep_vars=True)
        loaded = {}
        for key, tensor in own.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            if key in given and given[key].shape == tensor.shape:
                loaded[key] = given[key].clone()
            elif isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point():
                generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
                drawn = torch.randn(tensor.shape, generator=generator) * 0.1
                loaded[key] = drawn.to(tensor.dtype)
        if loaded:
            module.load_state_dict(loaded, strict=False)

    # --- calls -----------------------------------------------------------------------------------

    def arguments(self, number: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call on one of the sets, with iterators for one call."""
        return with_iterators(*self.given_arguments(number))

    def given_arguments(self, number: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of calls on one of the sets, with lists in place of iterators."""
        call = self.given
        if isinstance(call, Pickled):
            call = replace(call, data=self.data[number])
        args, kwargs = build_call(call, self.sets[number])
        function = self.program
        function = function.forward if isinstance(function, torch.nn.Module) else function
        return edited(function, args, kwargs, self.edits)

    def call(self, number: int = 0, grad: bool | None = None) -> Any:
        """Call the program on a set, with gradients where its workload has them."""
        args, kwargs = self.arguments(number)
        with torch.set_grad_enabled(self.subject.train if grad is None else grad), self.autocast():
            return drained(self.program(*args, **kwargs))

    def autocast(self) -> AbstractContextManager[object]:
        """Return what calls are made under: the workload's autocast or another one, and none for an
        oracle."""
        return nullcontext() if self.is_wide else self.casts

    # --- the record ------------------------------------------------------------------------------

    def say(self, name: str, text: object) -> None:
        """Record a fact."""
        self.facts.append((name, str(text)))

    def keep(self, value: Any, name: str = "output") -> list[torch.Tensor]:
        """Record a value: its structure in words, its tensors as they are now. Return the
        tensors themselves."""
        leaves, structure = flatten(drained(value))
        self.say(f"structure of {name}", structure)
        for number, leaf in enumerate(leaves):
            is_output = name == "output" or name.startswith("output ")
            self.names.append(f"output {number}{name[6:]}" if is_output else name)
            copy = plain(leaf)
            self.kept.append(
                copy.clone() if copy.dim() == 0 or 0 not in copy.stride() else copy.contiguous()
            )
        return leaves


def has_cpu_tensors(module: torch.nn.Module) -> bool:
    """Return whether a module on a GPU has attributes that are tensors of the CPU."""
    values = (value for one in module.modules() for value in vars(one).values())
    return any(isinstance(one, torch.Tensor) and one.device.type == "cpu" for one in values)


def given_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments by name; by number where no signature names one."""
    try:
        names = [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    found = {
        names[place] if place < len(names) else str(place): value
        for place, value in enumerate(args)
    }
    return {**found, **kwargs}


def edited(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], edits: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments with other values for some, by name. All after an omitted one are passed
    by name."""
    if not edits:
        return list(args), dict(kwargs)
    names = list(given_of(function, args, {}))
    positional: list[Any] = []
    named = dict(kwargs)
    is_by_name = False
    for name, value in zip(names, args, strict=True):
        new = edits.get(name, value)
        if new is OMITTED:
            is_by_name = True
        elif is_by_name:
            named[name] = new
        else:
            positional.append(new)
    for name, value in edits.items():
        if name in names:
            continue
        if value is OMITTED:
            named.pop(name, None)
        else:
            named[name] = value
    return positional, named


def float_dtype(name: str) -> torch.dtype:
    """Return the dtype of a name."""
    return dtype_of(name)
