"""Run the project's own commands beyond the wall: its tests, its builds, what its docs show.

    enclosure = Enclosure(pythons=(python,), copied=(checkout,), hidden=(state,))
    with enclosed(("pytest", "-q"), checkout, enclosure, environment) as process:
        process.wait(60)

A command sees the system, the project's interpreter with its packages, and the folders that it is
given. It has a home and a folder for temporary files of its own, no network unless that is
configured, no secret in its environment, and no other process in sight. What it writes to a
`copied` folder is dropped at its end. sandboxed/confinement/enclosure.py enters the layers; those
that this machine refuses are named in `refused`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import msgspec

from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.processes.environment import OWN_PREFIX, without_secrets
from cudal1_ci.processes.local import SANDBOXED
from cudal1_ci.records import Record

BOOTSTRAP = """\
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "cudal1_sandboxed", folder + "/__init__.py", submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules["cudal1_sandboxed"] = package
spec.loader.exec_module(package)
from cudal1_sandboxed.confinement.enclosure import main
main(sys.argv[2:])
"""
START_S = 30.0
MAX_LINKS = 8
MAX_OUTPUT_BYTES = 65536
HIDDEN = (
    ".git",
    ".env",
    ".env.*",
    ".envrc",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".ssh",
    ".aws",
    ".azure",
    ".docker",
    "gha-creds-*.json",
)
"""Entries at the top of a checkout that may hold a secret, as patterns. The last is what
google-github-actions/auth leaves there."""
CACHES = {
    "HF_HUB_CACHE": ".cache/huggingface/hub",
    "HF_DATASETS_CACHE": ".cache/huggingface/datasets",
    "TORCH_HOME": ".cache/torch",
    "NLTK_DATA": "nltk_data",
}
"""Data below the user's home that suites read, by the variable that names it. The token of the hub
lies next to the first, and is not among them."""
NEEDED = ("landlock", "private_root")
"""One of them must be granted: without both a command can read and write what the user can."""


class CommandsConfig(Record, frozen=True, kw_only=True):
    """What the project's own commands may use: `trace`, `compare.setup`, examples of the docs."""

    network: bool = False
    """Whether they reach the network: for builds that download, and tests that do."""
    read: tuple[str, ...] = ()
    """Folders outside of the project that they read, such as data sets."""
    unconfined: bool = False
    """Run them with the user's own rights, where this machine refuses to confine them."""


class Enclosure(Record, frozen=True, kw_only=True):
    """The place of a command."""

    pythons: tuple[str, ...] = ()
    """The project's interpreter, and that of the command."""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    """Folders that it may write to, and that keep their contents."""
    hidden: tuple[str, ...] = ()
    """Files and folders that it does not see, in whatever else it is given."""
    config: CommandsConfig = CommandsConfig()


class Beginning(Record, frozen=True):
    """What the outer process reports as the command starts."""

    granted: dict[str, bool | int | str]
    errno: int | None = None


class Enclosed:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[bytes], refused: dict[str, str]):
        self.process = process
        self.refused = refused
        """Layers that this machine does not grant, each with the reason."""


@contextlib.contextmanager
def enclosed(
    command: Sequence[str],
    folder: Path,
    enclosure: Enclosure,
    environment: Mapping[str, str],
    *,
    output: int | IO[bytes] = 2,
) -> Iterator[Enclosed]:
    """Run a command in `folder` with what `environment` has besides secrets. All that it started
    ends with the `with`.

    Raises:
        OSError: There is no such command.
        UnsupportedError: Nothing would confine it here.
    """
    scratch = Path(tempfile.mkdtemp(prefix="cudal1-ci-command-"))
    try:
        for name in ("home", "tmp"):
            (scratch / name).mkdir()
        process, said = started(command, folder, enclosure, environment, scratch, output)
        try:
            if said.errno:
                raise OSError(said.errno, os.strerror(said.errno))
            refused = {k: value for k, value in said.granted.items() if isinstance(value, str)}
            if all(name in refused for name in NEEDED) and not enclosure.config.unconfined:
                reasons = "; ".join(f"{name} is {refused[name]}" for name in NEEDED)
                raise UnsupportedError(
                    f"`{command[0]}` is not run: this machine confines no command ({reasons}). "
                    "Where its code may read and write what you can, set `commands.unconfined`"
                )
            yield Enclosed(process, refused)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
    finally:
        remove(scratch)


def run_to_end(
    command: Sequence[str],
    folder: Path,
    enclosure: Enclosure,
    environment: Mapping[str, str],
    limit_s: float,
) -> tuple[int, str]:
    """Run a command and return its exit code and output. Raises as `enclosed` does, and
    subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as output:
        with enclosed(command, folder, enclosure, environment, output=output) as process:
            code = process.process.wait(limit_s)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - MAX_OUTPUT_BYTES))
        return code, output.read().decode("utf-8", "replace")


def environment_folder(python: str) -> str | None:
    """Return the folder of a virtual environment; None for an interpreter that is in none."""
    folder = Path(python).absolute().parent.parent
    return str(folder) if (folder / "pyvenv.cfg").is_file() else None


def started(
    command: Sequence[str],
    folder: Path,
    enclosure: Enclosure,
    environment: Mapping[str, str],
    scratch: Path,
    output: int | IO[bytes],
) -> tuple[subprocess.Popen[bytes], Beginning]:
    """Start the outer process. Return it with its report."""
    ours, theirs = os.pipe()
    wanted = {
        "command": list(command),
        "folder": str(folder),
        "network": enclosure.config.network,
        "unconfined": enclosure.config.unconfined,
        "report": theirs,
        "place": {
            "scratch": str(scratch),
            "readable": [
                *(folder for one in enclosure.pythons for folder in folders_of_interpreter(one)),
                *folders_of_programs(environment),
                *enclosure.readable,
                *(str(Path(path).expanduser().absolute()) for path in enclosure.config.read),
            ],
            "writable": list(enclosure.writable),
            "copied": [*enclosure.copied, *caches(environment).values()],
            "hidden": hidden_in(enclosure),
        },
    }
    words = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(SANDBOXED), json.dumps(wanted)]
    try:
        process = subprocess.Popen(
            words,
            pass_fds=[theirs],
            env=environment_of(environment, scratch, enclosure.config.network),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output == 2 else subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        return process, report_of(ours, process)
    finally:
        os.close(ours)


def report_of(end: int, process: subprocess.Popen[bytes]) -> Beginning:
    """Return the last line of the report, which ends as the command starts."""
    text, deadline = b"", time.monotonic() + START_S
    while time.monotonic() < deadline:
        if select.select([end], [], [], 0.5)[0]:
            part = os.read(end, 65536)
            if not part:
                break
            text += part
    try:
        return msgspec.json.decode(text.splitlines()[-1], type=Beginning)
    except (IndexError, msgspec.MsgspecError) as error:
        process.kill()
        raise WorkerError(
            f"the process that confines a command ended before it did (exit code {process.wait()})"
        ) from error


def environment_of(given: Mapping[str, str], scratch: Path, network: bool) -> dict[str, str]:
    """Return the environment of a command: no secrets, and folders of its own."""
    kept = {k: v for k, v in without_secrets(given).items() if not k.startswith(OWN_PREFIX)}
    home = str(scratch / "home")
    own = {"HOME": home, "TMPDIR": str(scratch / "tmp"), "XDG_CACHE_HOME": f"{home}/.cache"}
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        kept.pop(name, None)
    if not network:
        own |= {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    return {**kept, **caches(given), **own}


def caches(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the folders of models and data that are there, by the variable that names each."""
    home = Path(environment.get("HOME") or Path.home())
    hub = environment.get("HF_HOME")
    found = {}
    for name, below in CACHES.items():
        usual = home / below
        if hub and below.startswith(".cache/huggingface/"):
            usual = Path(hub) / Path(below).name
        folder = Path(environment.get(name) or usual)
        if folder.is_dir() and not home.is_relative_to(folder):
            found[name] = str(folder.absolute())
    return found


def hidden_in(enclosure: Enclosure) -> list[str]:
    """Return what is hidden, with what is at the top of copied folders."""
    tops = map(Path, enclosure.copied)
    return [*enclosure.hidden, *(str(one) for top in tops for it in HIDDEN for one in top.glob(it))]


def folders_of_interpreter(python: str) -> list[str]:
    """Return the folders of an interpreter: its environment, the installation that this is of, and
    what its packages name elsewhere, as editable installs do."""
    found: list[Path] = []
    link = Path(python).absolute()
    for _ in range(MAX_LINKS):
        found.append(link.parent.parent)
        try:
            link = link.parent / link.readlink()
        except OSError:  # no link, or one that cannot be read
            break
    for folder in tuple(found):
        with contextlib.suppress(OSError):
            text = (folder / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
            found += [Path(home).parent for home in re.findall(r"(?m)^home\s*=\s*(.+?)\s*$", text)]
    found = [Path(os.path.normpath(folder)) for folder in found]
    packages = [one for folder in found for one in folder.glob("lib/python3*/*-packages")]
    named = [Path(line) for one in packages for line in folders_named_in(one)]
    whole = [folder for folder in found if folder != Path("/")]
    return list(dict.fromkeys(str(path) for path in (*whole, *named) if path.is_dir()))


def folders_of_programs(environment: Mapping[str, str]) -> list[str]:
    """Return the folders that programs and modules are looked for in."""
    named = (environment.get("PATH", os.defpath), environment.get("PYTHONPATH", ""))
    return [path for paths in named for path in paths.split(os.pathsep) if Path(path).is_absolute()]


def interpreter_of(program: str) -> str | None:
    """Return the interpreter that a program is, or that the first line of a script names."""
    found = shutil.which(program)
    if found is None or Path(found).name.startswith("python"):
        return found
    with contextlib.suppress(OSError), Path(found).open("rb") as stream:
        line = re.match(rb"#!\s*(/\S*python[\w.]*)\s", stream.readline(1000))
        return line[1].decode(errors="replace") if line else None
    return None


def folders_named_in(packages: Path) -> Iterator[str]:
    """Yield folders outside of an environment that its packages are read from."""
    for file in packages.glob("*.pth"):
        with contextlib.suppress(OSError):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (line.strip() for line in lines if line.startswith("/"))
    for file in packages.glob("*.dist-info/direct_url.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            said = json.loads(file.read_bytes())
            url = urlsplit(said.get("url", ""))
            if url.scheme == "file" and said.get("dir_info", {}).get("editable"):
                yield unquote(url.path)


def remove(scratch: Path) -> None:
    """Remove a command's folder, whatever it has made unreadable."""
    for folder, names, _ in os.walk(scratch):
        for name in names:
            with contextlib.suppress(OSError):
                if not Path(folder, name).is_symlink():
                    Path(folder, name).chmod(0o700)
    shutil.rmtree(scratch, ignore_errors=True)
