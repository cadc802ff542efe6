"""Read workloads declared in the configuration: `[[tool.cudal1-ci.workload]]` tables.

Takes tables that are already parsed. An error names exactly what is wrong with a table. A
declaration matches the targets that it is for. `declared_source.py` reads declarations in source
files.

    declared = declarations(settings.workloads, "pyproject.toml")
    declared[0].matches(target)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from cudal1_ci.discover.argument_text import ArgumentTextError, number_spec, parse_argument
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import ArgumentSpec, Call, Notice, Target, TensorSpec, Workload
from cudal1_ci.records.workload import Autocast, Floats

KEYS = ("target", "name", "init", "inputs", "mode", "dtype", "autocast", "atol", "rtol")
REQUIRED = ("target", "inputs")
Mode = Literal["infer", "train"]
MODES: tuple[Mode, ...] = ("infer", "train")
DTYPES: tuple[Floats, ...] = get_args(Floats)
AUTOCASTS: tuple[Autocast, ...] = get_args(Autocast)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Hold a table: its targets and its workload. `file` and `index` give its position."""

    file: str
    index: int
    pattern: str
    workload: Workload

    @property
    def where(self) -> str:
        return f"{self.file}: {key_in(self.file, self.index)}"

    def matches(self, target: Target) -> bool:
        """Return whether the workload belongs to this target.

        The pattern is `path.py:Qual` or `pkg.mod:Qual`; both sides of the colon may be globs.
        """
        place, _, qualname = self.pattern.rpartition(":")
        return fnmatchcase(target.qualname, qualname) and any(
            fnmatchcase(name, place) for name in (target.path, *module_names(target.path))
        )


def declarations(tables: Sequence[Mapping[str, Any]], file: str) -> tuple[Declaration, ...]:
    """Return the workloads of a file's parsed `[[tool.cudal1-ci.workload]]` tables.

    Raises: ConfigError that names the file, the table's index, the key, and what was expected.
    """
    return tuple(_declaration(table, file, index) for index, table in enumerate(tables))


def unmatched(declared: Iterable[Declaration], targets: Sequence[Target]) -> list[Notice]:
    """Return a notice for each table that matches no target, with the nearest existing name."""
    notices = []
    names = [target.address for target in targets]
    for each in declared:
        if not any(each.matches(target) for target in targets):
            near = difflib.get_close_matches(each.pattern, names, n=1, cutoff=0.5)
            hint = f"; did you mean `{near[0]}`?" if near else "; see `cudal1-ci scan --list`"
            notices.append(
                Notice(
                    path=each.file,
                    message=f"{key_in(each.file, each.index)}.target: `{each.pattern}` is not "
                    f"among the {len(names)} targets that were found{hint}",
                )
            )
    return notices


def key_in(file: str, index: int) -> str:
    """Return a table as its file calls it: only pyproject.toml has keys of other tools too."""
    is_shared = PurePosixPath(file).name == "pyproject.toml"
    return f"{'tool.cudal1-ci.' if is_shared else ''}workload[{index}]"


def module_names(path: str) -> list[str]:
    """Return the dotted names under which a file may be imported, for any import root."""
    parts = PurePosixPath(path).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return [".".join(parts[start:]) for start in range(len(parts))]


def _declaration(table: Mapping[str, Any], file: str, index: int) -> Declaration:
    where = f"{file}: {key_in(file, index)}"
    for key in table:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean `{near[0]}`? " if near else ""
            raise ConfigError(f"{where}: unknown key `{key}`; {hint}known keys: {', '.join(KEYS)}")
    for key in REQUIRED:
        if key not in table:
            raise ConfigError(f"{where}: the key `{key}` is missing; see docs/workloads.md")
    pattern = _text(table, "target", where)
    place, colon, qualname = (pattern or "").rpartition(":")
    if pattern is None or not (colon and place and qualname):
        raise ConfigError(
            f'{where}.target: expected "path/to/file.py:Name" or "pkg.mod:Name", got '
            f"{table['target']!r}"
        )
    workload = workload_of(
        init=table.get("init"),
        inputs=table["inputs"],
        mode=table.get("mode", "infer"),
        dtype=table.get("dtype"),
        autocast=table.get("autocast"),
        name=_text(table, "name", where),
        where=f"{where}.",
        source=f"{file}:{key_in(file, index)}",
        atol=_tolerance(table, "atol", where),
        rtol=_tolerance(table, "rtol", where),
    )
    return Declaration(file=file, index=index, pattern=pattern, workload=workload)


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise ConfigError(f"{where}.{key}: expected text, got {value!r}")
    return value


def _tolerance(table: Mapping[str, Any], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e30:
        raise ConfigError(f"{where}.{key}: expected a number of 0 or more, got {value!r}")
    return float(value)


def workload_of(
    *,
    init: object,
    inputs: object,
    mode: object,
    name: str | None,
    where: str,
    source: str,
    dtype: object = None,
    autocast: object = None,
    atol: float | None = None,
    rtol: float | None = None,
) -> Workload:
    """Build a declared workload from its written parts; `init` None means no arguments.

    Raises: ConfigError that begins with `where` and names the part.
    """
    if mode not in MODES:
        raise ConfigError(f'{where}mode: expected "infer" or "train", got {mode!r}')
    floats = next((one for one in DTYPES if one == dtype), None)
    if dtype is not None and floats is None:
        raise ConfigError(f"{where}dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    cast = next((one for one in AUTOCASTS if one == autocast), None)
    if autocast is not None and cast is None:
        raise ConfigError(
            f"{where}autocast: expected one of {', '.join(AUTOCASTS)}, got {autocast!r}; leave the "
            "key out for calls without autocast"
        )
    call = call_of(inputs, f"{where}inputs")
    return Workload(
        name=name or shapes_name(call) or "declared",
        provenance="declared",
        source=source,
        init=call_of([] if init is None else init, f"{where}init"),
        call=call,
        mode="train" if mode == "train" else "infer",
        dtype=floats,
        autocast=cast,
        atol=atol,
        rtol=rtol,
    )


def call_of(written: object, where: str) -> Call:
    """Parse the arguments of a call from a list with one text (or plain number) for each.

    Raises: ConfigError that begins with `where` and the number of the argument.
    """
    if not isinstance(written, list | tuple):
        raise ConfigError(
            f"{where}: expected a list with one string for each argument, such as "
            f'["float32[8, 128]"], got {written!r}'
        )
    args: list[ArgumentSpec] = []
    kwargs: dict[str, ArgumentSpec] = {}
    for number, one in enumerate(written):
        name, spec = _argument(one, f"{where}[{number}]")
        if name is None and kwargs:
            raise ConfigError(
                f"{where}[{number}]: expected `name=...`, for a keyword argument comes before it, "
                f"got {one!r}; move it to the front or name it"
            )
        if name is None:
            args.append(spec)
        elif name in kwargs:
            raise ConfigError(f"{where}[{number}]: `{name}` was given before; remove one of them")
        else:
            kwargs[name] = spec
    return Call(args=tuple(args), kwargs=kwargs)


def _argument(one: object, where: str) -> tuple[str | None, ArgumentSpec]:
    if isinstance(one, bool | int | float):
        return None, number_spec(one)
    if not isinstance(one, str):
        raise ConfigError(f'{where}: expected a string such as "float32[8, 128]", got {one!r}')
    try:
        return parse_argument(one)
    except ArgumentTextError as error:
        raise ConfigError(f"{where}: {error}") from error


def shapes_name(call: Call) -> str | None:
    """Return a name for an unnamed workload: the sizes of its first tensor, `8x128x256`."""
    for spec in (*call.args, *call.kwargs.values()):
        if isinstance(spec, TensorSpec):
            sizes = "x".join(map(str, spec.shape)) or "scalar"
            return sizes if spec.dtype == "float32" else f"{sizes}-{spec.dtype}"
    return None
