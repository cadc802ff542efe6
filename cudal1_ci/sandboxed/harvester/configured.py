"""Find arguments of a class in the configuration files of the checkout, and make it of them.

A mapping of a YAML or JSON file holds arguments of a class that it names: by `_target_` (Hydra), by
`target` with `params`, by a name, or by its own key. So does one whose keys are all arguments of
the constructor, or has all that the constructor reads of its only argument, a configuration. Files
that its `defaults` name are read too (composed.py). Values that only a command line gives are left
out. Dictionaries of the class's own module are read like a file, and so are the defaults of a
script's command line (command_lines.py) for a class that takes such an object.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .arguments import CONFIGS, MAX_DEPTH, constructions
from .command_lines import command_lines
from .composed import composed
from .reading import text_of
from .smaller import DEPTHS

PATHS = ("_target_", "target", "class_path")
NAMES = ("_name_", "name", "type", "class_name", "model_name", "model_type", "arch")
INNER = ("params", "init_args", "kwargs", "args")
"""Keys of a mapping that holds the arguments next to the name."""
MAX_FOUND = 3
"""Mappings that are tried for a class, the smallest variants first."""
MAX_INTERPOLATIONS = 8
MAX_KEYS = 12
"""Mappings inside of each other: a document may hold itself."""
VARIANTS = (
    *("atto", "femto", "pico", "nano", "micro", "xxs", "xs", "tiny", "ti", "t", "mini"),
    *("small", "s", "base", "b", "medium", "m", "large", "l", "huge", "giant"),
)
"""Words of a name that say how large a variant is, the smallest first."""
DEFAULTS = re.compile(r"^defaults:", re.MULTILINE)
UNKNOWN = object()
"""A value that a file does not give."""


class Recipe(NamedTuple):
    """A way to make an object of a class, and what shows it."""

    source: str
    """A file and key, or a function; empty for a guess."""
    make: Callable[[], Any]
    arguments: dict[str, Any]


class Constructor(NamedTuple):
    """What a class is made of."""

    cls: Any
    names: frozenset[str]
    needed: frozenset[str]
    takes_more: bool
    settings: str = ""
    """Its only argument where that is a configuration: the names are then what is read of it."""
    is_dict: bool = False

    @classmethod
    def of(cls, made: Any) -> Constructor:
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = list(inspect.signature(made.__init__).parameters.values())[1:]
        named = [one for one in parameters if one.kind not in several]
        needed = frozenset(one.name for one in named if one.default is one.empty)
        if len(needed) == 1 and needed <= CONFIGS:
            (settings,) = needed
            attributes, items = read_of(made, settings)
            return cls(made, needed, attributes or items, True, settings, not attributes)
        takes_more = any(one.kind is one.VAR_KEYWORD for one in parameters)
        return cls(made, frozenset(one.name for one in named), needed, takes_more)

    def arguments(self, held: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that a mapping holds."""
        if not self.settings:
            return {name: value for name, value in held.items() if name in self.names}
        settings = held.get(self.settings, {one: held[one] for one in held if one not in PATHS})
        return {self.settings: settings} if settings else {}


def read_of(cls: Any, settings: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes and the items of an argument that a constructor reads."""
    attributes, items = set(), set()
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_name_of(node.value, settings):
                attributes.add(node.attr)
            elif isinstance(node, ast.Subscript) and is_name_of(node.value, settings):
                items |= {str(one.value) for one in [node.slice] if isinstance(one, ast.Constant)}
    return frozenset(attributes) - {*dir(dict)}, frozenset(items)


def is_name_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def settings_class(cls: Any, settings: str) -> Any:
    """Return the class of a constructor's configuration, by its annotation or as models of
    transformers name it; None where none is known."""
    named = getattr(cls, "config_class", None)
    with contextlib.suppress(Exception):  # an annotation may be of what is not there
        named = named or typing.get_type_hints(cls.__init__).get(settings)
    return named if isinstance(named, type) and not issubclass(named, dict) else None


def settings_of(value: Any, kind: Any) -> Any:
    """Return a mapping as a configuration of its class, which has defaults for the rest. Where that
    takes no such values, it is an object with the keys as attributes."""
    if kind is not None and isinstance(value, dict):
        with contextlib.suppress(Exception):
            parameters = inspect.signature(kind).parameters
            is_open = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            return kind(**{key: one for key, one in value.items() if is_open or key in parameters})
    return with_attributes(value)


def with_attributes(value: Any) -> Any:
    """Return a mapping as an object with its keys as attributes."""
    if not isinstance(value, dict):
        return value
    return argparse.Namespace(**{str(one): with_attributes(held) for one, held in value.items()})


def configured(cls: Any, root: Path, paths: Sequence[str], own_path: str) -> Iterator[Recipe]:
    """Yield ways to make an object of a class that configuration files show, or tables of its own
    module: those that name it first, then the smallest variants."""
    constructor = Constructor.of(cls)
    found: dict[str, tuple[tuple[bool, int, int], str, dict[str, Any]]] = {}
    for path, document in documents(constructor, root, paths, own_path):
        for keys, mapping in mappings_in(document):
            is_named, arguments = arguments_in(mapping, keys[-1] if keys else "", constructor)
            known = known_values(arguments, document, Path(path).parent.name)
            if known:
                source = f"{path}: {'.'.join(keys)}" if keys else path
                rank = not is_named, variant(source)[0], size_of(known)
                found.setdefault(repr(known), (rank, source, known))
    for _, source, arguments in sorted(found.values(), key=lambda one: one[0])[:MAX_FOUND]:
        notes: list[str] = []
        less = shallower(arguments, notes)
        ways = [(f"{source} (smaller: {', '.join(notes)})", less)] if notes else []
        for way in (*ways, (source, arguments)):
            with contextlib.suppress(Exception):  # others may do
                yield from recipes(constructor, *way)


def documents(
    constructor: Constructor, root: Path, paths: Sequence[str], own_path: str
) -> Iterator[tuple[str, Any]]:
    """Yield files that may hold arguments of a class, the command lines of scripts for a class that
    takes these as one object, and the dictionaries of its module."""
    cls, needed = constructor.cls, constructor.needed
    for path in paths:
        text = text_of(root / path)
        has_needed = needed and all(one in text for one in needed)
        names = has_needed or cls.__name__.lower() in plain(text)
        if names or DEFAULTS.search(text):  # reading YAML takes long
            yield path, composed(root / path, root)
    if constructor.settings:
        yield from command_lines(root)
    own = vars(sys.modules[cls.__module__])
    tables = {name: value for name, value in own.items() if isinstance(value, dict)}
    yield own_path, {name: value for name, value in tables.items() if not name.startswith("__")}


def recipes(constructor: Constructor, source: str, arguments: dict[str, Any]) -> Iterator[Recipe]:
    """Yield ways to make an object of arguments, with guesses for those that are not known."""
    known = {name: instantiated(value) for name, value in arguments.items()}
    if constructor.settings and not constructor.is_dict:
        kind = settings_class(constructor.cls, constructor.settings)
        known = {name: settings_of(value, kind) for name, value in known.items()}
    for more in constructions(constructor.cls, known):
        yield Recipe(source, functools.partial(constructor.cls, **more), more)


def arguments_in(
    mapping: dict[Any, Any], key: str, constructor: Constructor
) -> tuple[bool, dict[str, Any]]:
    """Return whether a mapping names a class, and the arguments of its constructor; none where it
    is another one's."""
    cls, names, needed, takes_more, *_ = constructor
    paths = [one for one in map(mapping.get, PATHS) if isinstance(one, str) and "." in one]
    is_path = any(is_path_of(one, cls) for one in paths)
    is_name = not paths and any(same_name(one, cls) for one in (key, *map(mapping.get, NAMES)))
    if is_path or is_name:
        inner = (mapping.get(one) for one in INNER if one not in names)
        mapping = next((one for one in inner if isinstance(one, dict)), mapping)
    has_needed = needed <= mapping.keys() and not paths
    is_like = needed and len(mapping) > 1 and (takes_more or mapping.keys() <= names)
    if not is_path and not (has_needed and (is_name or is_like)):
        return False, {}
    return is_path or is_name, constructor.arguments(mapping)


def is_path_of(dotted: str, cls: Any) -> bool:
    """Return whether a dotted path names a class, from any root or through a package above it."""
    module, _, name = dotted.rpartition(".")
    own, named = f".{cls.__module__}.", f".{module}."
    is_near = own.startswith(named) or own.endswith(named) or named.endswith(own)
    return name == cls.__name__ and is_near


def same_name(name: Any, cls: Any) -> bool:
    """Return whether a text is the name of a class, in any case and with underscores or without."""
    return isinstance(name, str) and plain(name) == cls.__name__.lower()


@functools.cache
def plain(text: str) -> str:
    return text.replace("_", "").replace("-", "").lower()


def variant(name: str) -> tuple[int, list[int]]:
    """Return the place of a variant among those of other sizes: by its words, then its numbers."""
    words = re.findall(r"(?<![a-z0-9])([a-z]+)\d*(?![a-z0-9])", name.lower())
    known = [VARIANTS.index(word) for word in words if word in VARIANTS]
    return min(known, default=len(VARIANTS)), [int(one) for one in re.findall(r"\d+", name)]


def size_of(value: Any) -> int:
    """Return the sum of the whole numbers in arguments: that of a small model is small."""
    if isinstance(value, dict | list):
        return sum(map(size_of, value.values() if isinstance(value, dict) else value))
    return value if type(value) is int else 0


def mappings_in(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the mappings of a document with their keys."""
    if len(keys) > MAX_KEYS:
        return
    if isinstance(value, dict):
        yield keys, value
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in [*items, *(enumerate(value) if isinstance(value, list) else ())]:
        yield from mappings_in(inner, (*keys, str(key)))


def known_values(value: Any, document: Any, group: str, depth: int = 0) -> Any:
    """Return a value with what it interpolates from its own document (`${model.dim}`). A file in
    the folder `model` may call its own values so, too."""
    if isinstance(value, dict):
        known = {one: known_values(inner, document, group, depth) for one, inner in value.items()}
        return {one: inner for one, inner in known.items() if inner is not UNKNOWN}
    if isinstance(value, list):
        items = [known_values(one, document, group, depth) for one in value]
        return UNKNOWN if any(one is UNKNOWN for one in items) else items
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[-+]?\d+(\.\d*)?e[-+]?\d+", value, re.IGNORECASE):
        return float(value)  # a number for Hydra, a text for YAML 1.1
    if value == "???" or depth > MAX_INTERPOLATIONS:
        return UNKNOWN
    if "${" not in value:
        return value
    keys = re.fullmatch(r"\$\{([\w.]+)\}", value)
    if keys is None:
        return UNKNOWN
    path = keys[1].split(".")
    for some in (path, path[1:] if path[0] == group else []):
        held: Any = document
        for key in some:
            held = held.get(key, UNKNOWN) if isinstance(held, dict) else UNKNOWN
        if some and held is not UNKNOWN:
            return known_values(held, document, group, depth + 1)
    return UNKNOWN


def shallower(value: Any, notes: list[str]) -> Any:
    """Return arguments with few layers, and note each change."""
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        is_deep = name in DEPTHS and type(inner) is int and inner > MAX_DEPTH
        found[name] = MAX_DEPTH if is_deep else shallower(inner, notes)
        if is_deep:
            notes.append(f"{name} {inner} -> {MAX_DEPTH}")
    return found


def instantiated(value: Any) -> Any:
    """Return a value with the objects that it describes by `_target_`, as Hydra makes them."""
    if isinstance(value, list):
        return [instantiated(one) for one in value]
    if not isinstance(value, dict):
        return value
    inner = {name: instantiated(one) for name, one in value.items()}
    if not isinstance(value.get("_target_"), str):
        return inner
    module, _, name = value["_target_"].rpartition(".")
    make = getattr(importlib.import_module(module), name)
    args = inner.get("_args_", ())
    kwargs = {one: held for one, held in inner.items() if not one.startswith("_")}
    made = functools.partial(make, *args, **kwargs)
    return made if value.get("_partial_") else made()


__all__ = ["Recipe", "configured", "variant"]
