"""A stand-in for Docker and Podman: it records what it is told and runs the worker without walls.

What is tested through it is this side of an engine: the command line, the channel, how a worker is
awaited and ends. `install` writes a program that says it is one of the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

IMAGE = "base:12"
IMAGE_ID = "ab" * 32
BY_PODMAN = {"docker": "Docker version 28.2.2, build e6534b4", "podman": "podman version 4.3.1"}


def install(folder: Path, kind: str = "docker", **behavior: Any) -> Path:
    """Put the stand-in into a folder for PATH; `behavior` is what `main` looks up."""
    folder.mkdir(exist_ok=True)
    program = folder / kind
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    (folder / "behavior.json").write_text(json.dumps({"version": BY_PODMAN[kind], **behavior}))
    return program


def calls(folder: Path) -> list[list[str]]:
    """The command lines that it was given, without its name."""
    lines = (folder / "calls").read_text().splitlines()
    return [json.loads(line) for line in lines]


def run_of(folder: Path) -> list[str]:
    """The command line of the one container that was run."""
    (found,) = [words for words in calls(folder) if words[0] == "run"]
    return found


def values(words: list[str], option: str) -> list[str]:
    """What an option was given, each time."""
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return joined + [words[i + 1] for i, word in enumerate(words) if word == option]


def mounts(words: list[str]) -> dict[str, dict[str, str]]:
    """The `--mount` options by their target."""
    found = [
        dict(f.partition("=")[::2] for f in text.split(",")) for text in values(words, "--mount")
    ]
    return {mount["target"]: mount for mount in found}


def main() -> None:
    folder, words = Path(sys.argv[0]).parent, sys.argv[1:]
    behavior = json.loads((folder / "behavior.json").read_text())
    with (folder / "calls").open("a") as file:
        file.write(json.dumps(words) + "\n")
    said: dict[str, Any] = {"code": 0, "out": "", "err": ""}
    match words[0]:
        case "--version":
            said["out"] = behavior["version"]
        case "image":
            if words[-1] == IMAGE:
                said["out"] = f"sha256:{IMAGE_ID}"
            else:
                said |= {
                    "code": 1,
                    "err": f"Error response from daemon: No such image: {words[-1]}",
                }
        case "run" if "run" in behavior:
            said |= behavior["run"]
        case "run":
            raise SystemExit(run_worker(words))
    sys.stdout.write(said["out"])
    sys.stderr.write(said["err"])
    raise SystemExit(said["code"])


def run_worker(words: list[str]) -> int:
    """The worker beside the stand-in: its places inside of a container are moved outside."""
    shared = mounts(words)["/cudal1-ci/channel"]["source"]
    command = [*values(words, "--entrypoint"), *words[words.index(IMAGE_ID) + 1 :]]
    command = [word.replace("/cudal1-ci/channel", shared) for word in command]
    with tempfile.TemporaryDirectory() as scratch:
        named = dict(text.partition("=")[::2] for text in values(words, "--env"))
        moved = {name: v.replace("/cudal1-ci/scratch", scratch) for name, v in named.items()}
        process = subprocess.Popen(
            command, env={"PATH": os.defpath, **moved}, cwd="/", start_new_session=True
        )
        (Path(sys.argv[0]).parent / "pid").write_text(str(process.pid))
        return process.wait()


if __name__ == "__main__":
    main()
