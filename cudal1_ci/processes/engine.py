"""Docker and Podman: which one is here, whether it works, and how each wants to be told the same.

Knows the engines' command lines and messages. What a container is for is `container.py`'s.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cudal1_ci.errors import UnsupportedError

EngineName = Literal["podman", "docker"]
"""Names alone, which PATH is searched for: a path could lead into the checkout that is judged, and
an engine's command has all of the host's environment."""
ENGINES: tuple[EngineName, ...] = ("podman", "docker")
"""In the order in which they are looked for: the first one needs no daemon that runs as root."""
ANSWER_S = 60.0
"""An engine that was not used for long reads its storage from a cold disk."""
IMAGE_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")

LOCAL = '`executor = "local"` (--executor local) needs no container'


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A command that answers."""

    path: str
    kind: EngineName
    """Which of the two it is, whatever its name."""
    version: str
    is_rootless: bool
    """Whether root inside of a container is this ordinary user outside."""

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the engine to its end."""
        return answered(self.path, *words)

    def image_id(self, image: str) -> str:
        """The digest of an image's configuration, which names its content: 64 hex digits.

        Raises:
            UnsupportedError: There is no such image on this machine. None is ever fetched.
        """
        done = self.ask("image", "inspect", "--format", "{{.Id}}", image)
        found = IMAGE_ID.search(done.stdout)
        if done.returncode == 0 and found:
            return found.group(1)
        said = last_line(done.stderr)
        if re.search(r"no such image|image not known", said, re.IGNORECASE):
            raise UnsupportedError(
                f"`container-image`: {self.kind} has no image `{image}`, and images are not "
                f"fetched without being asked for: `{self.kind} pull {image}`, or name the engine "
                "that has it with `container-engine`"
            )
        raise UnsupportedError(
            f"`container-image`: {self.kind} cannot look at the image `{image}`: {said}"
        )

    def gpu_arguments(self, uuid: str) -> list[str]:
        """Give a container that GPU alone."""
        if self.kind == "docker":
            return ["--gpus", f"device={uuid}"]
        return ["--device", f"nvidia.com/gpu={uuid}"]

    def user_arguments(self) -> list[str]:
        """Run as this user: what it may read outside it may read inside."""
        own = f"{os.geteuid()}:{os.getegid()}"
        if self.kind == "podman":
            return ["--user", own, *(["--userns", "keep-id"] if self.is_rootless else [])]
        # The daemon may map users; a container without such a map knows this one by its number.
        return ["--user", "0:0"] if self.is_rootless else ["--user", own, "--userns", "host"]

    @property
    def runs_as_root_inside(self) -> bool:
        """Whether the number of the container's user is 0 in it."""
        return os.geteuid() == 0 or (self.kind == "docker" and self.is_rootless)

    @property
    def unmask_arguments(self) -> list[str]:
        """Show all of /proc: who sees one that is covered in parts may not mount another."""
        word = "systempaths=unconfined" if self.kind == "docker" else "unmask=ALL"
        return ["--security-opt", word]

    @property
    def own_arguments(self) -> list[str]:
        """What only one of the two does unless it is told not to."""
        if self.kind == "podman":
            return ["--http-proxy=false", "--read-only-tmpfs=false", "--image-volume", "ignore"]
        # The client would take proxies, and their passwords, from its own configuration.
        names = [f"{kind}_proxy" for kind in ("http", "https", "ftp", "no", "all")]
        spelled = [*names, *map(str.upper, names)]
        return [word for name in spelled for word in ("--env", f"{name}=")]


def find_engine(name: EngineName | None) -> Engine:
    """The named engine, or the first one that is installed and works.

    Raises:
        UnsupportedError: There is none, or none answers.
    """
    reasons = []
    for candidate in [name] if name else ENGINES:
        path = shutil.which(candidate)
        if path is None or not path.startswith("/"):  # PATH may name the current folder
            continue
        try:
            return reached(path)
        except UnsupportedError as error:
            reasons.append(str(error))
    if reasons:
        raise UnsupportedError("; ".join(reasons))
    looked_for = f"`{name}` (`container-engine`)" if name else "neither podman nor docker"
    raise UnsupportedError(
        f"`executor`: a container needs an engine, and {looked_for} is{' not' if name else ''} "
        f"installed here: `apt-get install podman`, or name one with `container-engine`; {LOCAL}"
    )


def reached(path: str) -> Engine:
    """The engine at that path, once it has answered.

    Raises:
        UnsupportedError: It is none, or its daemon cannot be reached.
    """
    said = answered(path, "--version")
    words = re.search(r"(docker|podman) version v?([\w.+~-]+)", said.stdout, re.IGNORECASE)
    if said.returncode != 0 or words is None:
        raise UnsupportedError(
            f"`container-engine`: {path} is neither docker nor podman "
            f"(`--version` said: {last_line(said.stdout + said.stderr)})"
        )
    kind: EngineName = "podman" if words.group(1).lower() == "podman" else "docker"
    version = words.group(2)
    if kind == "podman":
        return Engine(path=path, kind=kind, version=version, is_rootless=os.geteuid() != 0)
    done = answered(path, "info", "--format", "{{json .SecurityOptions}}\t{{.ServerVersion}}")
    options, _, server = done.stdout.strip().partition("\t")
    if done.returncode != 0 or not server:
        raise UnsupportedError(
            f"`executor`: the daemon of {path} does not answer ({last_line(done.stderr)}). Start "
            "it (`systemctl start docker`), let this user use it (group `docker`, which is as good "
            f"as root), or use podman, which needs none; {LOCAL}"
        )
    try:
        is_rootless = any("rootless" in option for option in json.loads(options) or ())
    except ValueError:
        is_rootless = False
    return Engine(path=path, kind=kind, version=server, is_rootless=is_rootless)


def answered(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command of the engine said.

    Raises:
        UnsupportedError: It cannot be run, or said nothing in time.
    """
    try:
        return subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnsupportedError(f"`container-engine`: {path} cannot be used: {error}") from error


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def quoted(fields: Sequence[tuple[str, str | None]]) -> str:
    """Comma-separated `key=value` or `key`, as the engines read `--mount`: a field with a comma or
    a quote stands in quotes."""
    words = [key if value is None else f"{key}={value}" for key, value in fields]
    return ",".join(
        f'"{w.replace(chr(34), chr(34) * 2)}"' if set(w) & set(',"\n') else w for w in words
    )
