"""Read settings where they are written: a file, the environment, the command line.

    given = from_file(*read_file(root), root, keys)

Knows the names of the places and of the keys; what the values mean is `values.py`'s.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1_ci.config.keys import ENVIRONMENT_PREFIX, Key, all_rooms, kebab
from cudal1_ci.config.values import Given, described
from cudal1_ci.errors import ConfigError

PYPROJECT = Path("pyproject.toml")
OWN_FILE = Path(".github/cudal1-ci.toml")
TABLE = "cudal1-ci"
SPELLINGS = ("cudal1ci", "cudal1", "cudalci")
"""Letters and digits of what people write for it: `cudal1_ci`, `cuda-l1-ci`, `CudaL1`."""
WORKLOAD, ACK = "workload", "ack"
TABLES = (WORKLOAD, ACK)
"""Arrays of tables, which other rooms read."""


def read_file(root: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the file that configures `root` and its table of settings; None and an empty table
    without one.
    """
    pyproject, own = root / PYPROJECT, root / OWN_FILE
    tool = read_toml(pyproject).get("tool", {}) if pyproject.is_file() else {}
    if isinstance(tool, dict):
        refuse_other_spellings(pyproject, tool)
    in_pyproject = isinstance(tool, dict) and TABLE in tool
    if in_pyproject and own.is_file():
        raise ConfigError(
            f"expected one configuration, found two: [tool.cudal1-ci] in {pyproject} and {own}; "
            "move everything into one of them and remove the other"
        )
    if own.is_file():
        return own, read_toml(own)
    if not in_pyproject:
        return None, {}
    table = tool[TABLE]
    if not isinstance(table, dict):
        raise ConfigError(f"{pyproject}: [tool.cudal1-ci] must be a table, got {described(table)}")
    return pyproject, table


def refuse_other_spellings(pyproject: Path, tool: Mapping[str, Any]) -> None:
    """Refuse a table with a misspelled name of ours, which would be ignored silently.

    Raises: ConfigError.
    """
    for name in tool:
        if name != TABLE and re.sub(r"[^a-z0-9]", "", name.lower()) in SPELLINGS:
            raise ConfigError(
                f"{pyproject}: unknown table [tool.{name}]; did you mean [tool.{TABLE}]?"
            )


def read_toml(path: Path) -> dict[str, Any]:
    """Read the content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected TOML in UTF-8: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def from_file(
    table: Mapping[str, Any], file: Path | None, root: Path, keys: Mapping[str, Key]
) -> dict[str, Given]:
    """Return the keys of a file, those of a room's table by their full name."""
    if file is None:
        return {}
    flat: dict[str, Any] = {}
    rooms = [kebab(room) for room in all_rooms()]
    for name, value in table.items():
        if name in rooms:
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: `{name}` must be a table, got {described(value)}")
            flat.update({f"{name}.{inner}": v for inner, v in value.items()})
        elif name not in TABLES:
            flat[name] = value
    for name in flat:
        if name not in keys:
            raise unknown_key(str(file), name, [*keys, *rooms, *TABLES])
    origin = str(file.relative_to(root))
    return {
        name: Given(value=value, origin=origin, folder=root.absolute())
        for name, value in flat.items()
    }


def from_environment(environ: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Given]:
    """Return the keys that are set as variables. An empty variable, such as a workflow's unset
    input, is not set.
    """
    by_variable = {key.variable: key.name for key in keys.values()}
    given = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or not text:
            continue
        if variable not in by_variable:
            raise unknown_key("the environment", variable, list(by_variable))
        given[by_variable[variable]] = Given(
            value=text, origin=variable, folder=Path.cwd(), is_text=True
        )
    return given


def from_flags(
    overrides: Mapping[str, Any], keys: Mapping[str, Key], options: Mapping[str, str]
) -> dict[str, Given]:
    """Return the keys that flags set; None is a flag that was not given."""
    given = {kebab(name): value for name, value in overrides.items() if value is not None}
    for name in given:
        if name not in keys:
            raise unknown_key("the command line", name, list(keys))
    return {
        name: Given(value=value, origin="command line", folder=Path.cwd(), name=options.get(name))
        for name, value in given.items()
    }


def tables_of(name: str, table: Mapping[str, Any], file: Path | None) -> tuple[dict[str, Any], ...]:
    """Return the `[[workload]]` or `[[ack]]` tables; another room reads their content."""
    tables = table.get(name, [])
    prefix = f"tool.{TABLE}." if file is not None and file.name == PYPROJECT.name else ""
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ConfigError(
            f"{file}: `{name}` must be an array of tables, got {described(tables)}; "
            f"write its header with two brackets: [[{prefix}{name}]]"
        )
    return tuple(tables)


def unknown_key(place: str, name: str, known: list[str]) -> ConfigError:
    """Return the error of an unknown key, with the nearest known one."""
    if re.search(r"token|secret|password|api[-_]?key", name, re.IGNORECASE):
        return ConfigError(
            f"{place}: unknown key `{name}`; it looks like a secret, and no setting holds one: "
            "remove it from there"
        )
    if name == "tool":
        return ConfigError(
            f"{place}: unknown key `tool`; this file holds the keys alone: write `budget`, not "
            "`tool.cudal1-ci.budget`"
        )
    room, _, last = name.rpartition(".")
    level = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == room}
    near = [level[match] for match in difflib.get_close_matches(last, level, n=1, cutoff=0.6)]
    # A key that was written into the wrong table: `threads` at the top, `review.budget`.
    near += [one for one in known if one.rpartition(".")[2] == last]
    hint = (
        f"did you mean `{near[0]}`?"
        if near
        else f"known keys: {', '.join(level.values() or known)}"
    )
    return ConfigError(f"{place}: unknown key `{name}`; {hint}")
