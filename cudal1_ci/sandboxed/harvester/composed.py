"""Compose a configuration of the files that its `defaults` name, as Hydra does.

    defaults:
      - base              # base.yaml of the same folder
      - encoder: small    # encoder/small.yaml, below the key `encoder`
      - _self_            # what this file says itself; last, where it is not named

See https://hydra.cc/docs/advanced/defaults_list/. Overrides of a command line are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .reading import parsed, text_of

SELF = "_self_"
AT_THE_TOP = ("_global_", "_here_")
"""Packages of values that get no key of their own."""
GLOBAL = "# @package _global_"
"""First line of a file that puts its values at the top, wherever it is named."""
SUFFIXES = (".yaml", ".yml")
MOST_FILES = 64
"""Files of which a configuration is composed: they may name each other."""


class Choice(NamedTuple):
    """A file that a list of defaults names."""

    group: str
    name: str
    package: str
    """Keys with dots between them, below which its values are."""


def composed(path: Path, root: Path, files: list[Path] | None = None) -> Any:
    """Return what a file of a checkout holds, with what its defaults hold. A file that is not there
    adds nothing. `files` are those that were read for it before."""
    files = [] if files is None else files
    files.append(path)
    document = parsed(path)
    named = document.get("defaults") if isinstance(document, dict) else None
    if not isinstance(named, list):
        return document
    found: dict[str, Any] = {}
    for one in named if SELF in named else [*named, SELF]:
        if one == SELF:
            merge(found, {key: value for key, value in document.items() if key != "defaults"})
            continue
        for choice in choices(one):
            file = file_of(choice, path.parent, root)
            if file is None or len(files) >= MOST_FILES:
                continue
            inner = composed(file, root, files)
            package = "" if text_of(file).startswith(GLOBAL) else choice.package
            if isinstance(inner, dict):
                merge(found, placed(inner, package))
    return found


def choices(named: Any) -> Iterator[Choice]:
    """Yield the files that an item of the list names."""
    items = named.items() if isinstance(named, dict) else [("", named)]
    for key, value in items:
        group, _, package = str(key).split(" ")[-1].partition("@")
        package = package or group.strip("/").replace("/", ".")
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and "${" not in name and name != "???":
                yield Choice(group, name, "" if package in AT_THE_TOP else package)


def file_of(choice: Choice, folder: Path, root: Path) -> Path | None:
    """Return the file of a choice: below a folder, or below one around it."""
    place = "/".join(one for one in (choice.group.strip("/"), choice.name.strip("/")) if one)
    place = place.removesuffix(".yaml").removesuffix(".yml")
    for around in (folder, *folder.parents):
        if not around.is_relative_to(root):
            return None
        for suffix in SUFFIXES:
            file = around / f"{place}{suffix}"
            if file.is_file() and file.resolve().is_relative_to(root.resolve()):
                return file
    return None


def placed(values: dict[str, Any], package: str) -> dict[str, Any]:
    """Return values below the keys of a package."""
    for key in reversed(package.split(".") if package else []):
        values = {key: values}
    return values


def merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Put values into others, mapping by mapping; later ones count."""
    for key, value in values.items():
        held = into.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            into[key] = dict(held)
            merge(into[key], value)
        else:
            into[key] = value
