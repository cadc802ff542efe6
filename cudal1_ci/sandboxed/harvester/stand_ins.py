"""Let packages be absent that a script imports and that are not installed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from ..wire.harvest import ABSENT


class StandIn(types.ModuleType):
    """A module that only draws or logs, and is not installed: whatever is called does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Nothing:
    """Take every call, attribute and item, and give itself; as a decorator, what it decorates."""

    def __call__(self, *args: Any, **more: Any) -> Any:
        decorates = len(args) == 1 and not more and isinstance(args[0], types.FunctionType | type)
        return args[0] if decorates else self

    def __lt__(self, _: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __setitem__(self, _: Any, __: Any) -> None:
        return

    def __iter__(self) -> Any:
        return iter((self, self))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return

    def __or__(self, _: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()


Nothing.__name__ = "package that is not installed"
"""As errors of its operations name it."""


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find stand-ins, after all other finders."""

    def __init__(self, names: Sequence[str]):
        self.names = set(names)

    def find_spec(
        self, fullname: str, _: Sequence[str] | None, __: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        return


standing = StandInFinder(())


def stand_ins(names: Sequence[str]) -> None:
    """Let packages that only draw or log be absent."""
    standing.names.update(names)
    if standing not in sys.meta_path:
        sys.meta_path.append(standing)


def stand_in_for(error: BaseException, own: Sequence[str]) -> str | None:
    """Let the package whose absence an exception reports be absent from now on, and return its
    name; None where it is of the checkout, stands in already, or something else is wrong."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name = error.name.partition(".")[0]
    if name in {*own, *standing.names, "torch"} or name in sys.modules:
        return None
    stand_ins((name,))
    return name


def imported(module: str, own: Sequence[str], note: Callable[[str], None]) -> types.ModuleType:
    """Import a module, with stand-ins for packages that are not installed."""
    while True:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            name = stand_in_for(error, own)
            if name is None:
                raise
            note(f"{ABSENT}{name}")


__all__ = ["imported", "stand_in_for", "stand_ins"]
