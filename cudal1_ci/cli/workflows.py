"""Fill the templates of workflows for `cudal1-ci init --workflows` with three values.

Those in templates/workflows run as they stand, but for the commit of the Action, which is all
zeros there; examples/workflows shows the same text.

    rendered("cudal1-ci.yml", "owner/cudal1-ci@" + 40 * "f", ["h100", "a100"])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

import cudal1_ci
from cudal1_ci.errors import ConfigError, CudaL1Error
from cudal1_ci.git import head_sha, name_of_remote, repository_name, repository_top
from cudal1_ci.render.templates import templates_folder

ALWAYS = "cudal1-ci.yml"
ALSO = {
    "code-scanning": ("cudal1-ci-code-scanning.yml",),
    "commands": ("cudal1-ci-commands.yml", "cudal1-ci-on-request.yml"),
    "forks": ("cudal1-ci-forks.yml",),
    "merge-queue": ("cudal1-ci-merge-queue.yml",),
    "sweep": ("cudal1-ci-sweep.yml",),
    "trend": ("cudal1-ci-trend.yml",),
}

PLACEHOLDER = re.compile(r"OWNER/cudal1-ci(?P<folder>(?:/\w+)*)@0{40} # v[\d.]+")
MATRIX = re.compile(r"^(?P<before> +gpu: )\[gpu\]", re.MULTILINE)
ACTION = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40})")
REPORTS = re.compile(r"^(?P<indent> +)reports: [^\n]+\n", re.MULTILINE)
NAMED = 'commands: "true"\n'
LABEL = re.compile(r"[A-Za-z0-9][\w.-]*")


def workflow_files(also: Sequence[str], action: str | None, gpus: Sequence[str]) -> dict[str, str]:
    """Return workflows by their name in .github/workflows.

    Raises:
        ConfigError: A label or the action has a wrong form, or the Action is unknown.
    """
    action = action or own_action()
    names = (ALWAYS, *(name for one in also for name in ALSO[one]))
    files = {name: rendered(name, action, gpus) for name in names}
    if "commands" in also:
        files = {name: named_commands(text) for name, text in files.items()}
    return files


def named_commands(text: str) -> str:
    """Name the commands in a workflow's comments, where a workflow answers them."""
    if NAMED in text:
        return text
    return REPORTS.sub(lambda found: found[0] + found["indent"] + NAMED, text)


def rendered(name: str, action: str, gpus: Sequence[str]) -> str:
    """Fill a workflow with the Action's commit and the labels of the runners."""
    match = ACTION.fullmatch(action)
    if match is None:
        raise ConfigError(
            f"--action {action}: expected OWNER/NAME@COMMIT with all 40 digits of the commit; a "
            "tag can be moved to other code"
        )
    for label in gpus:
        if not LABEL.fullmatch(label):
            raise ConfigError(
                f"--gpu {label}: expected the label of a runner: letters, digits, `-`, `_`, `.`"
            )
    text = (templates_folder() / "workflows" / name).read_text(encoding="utf-8")
    labels = f"[{', '.join(gpus)}]"
    text = MATRIX.sub(lambda found: found["before"] + labels, text)
    version = cudal1_ci.__version__
    return PLACEHOLDER.sub(
        lambda found: f"{match['name']}{found['folder']}@{match['commit']} # v{version}", text
    )


def own_action() -> str:
    """Return the Action of this clone, or of the place that this was installed from.

    Raises:
        ConfigError: Neither says a repository of a forge and a commit.
    """
    package = Path(cudal1_ci.__file__).resolve().parent
    for found in (of_clone(package, package.parent), of_installation()):
        if found is not None and ACTION.fullmatch(found):
            return found
    version = cudal1_ci.__version__
    raise ConfigError(
        "--workflows: it is not known where the Action is, since this neither runs from a clone of "
        "it nor was installed from its repository (`pip install git+https://...`); name it: "
        f"--action OWNER/cudal1-ci@COMMIT, the commit that has v{version}"
    )


def of_clone(folder: Path, top: Path) -> str | None:
    """Return `owner/name@commit` of a clone whose top is `top`, for a folder in it."""
    try:
        if repository_top(folder) != top:
            return None
        return f"{repository_name(folder)}@{head_sha(folder)}"
    except CudaL1Error:
        return None


class Origin(msgspec.Struct):
    """Hold what an installer records of where a package is from. Source: PEP 610."""

    url: str
    vcs_info: dict[str, str] = {}
    dir_info: dict[str, bool] | None = None


def of_installation() -> str | None:
    """Return `owner/name@commit` of the repository or local clone that this was installed from;
    None for a registry.
    """
    try:
        text = distribution("cudal1-ci").read_text("direct_url.json")
        origin = msgspec.json.decode(text or "", type=Origin)
    except (PackageNotFoundError, msgspec.MsgspecError):
        return None
    if origin.dir_info is not None:
        folder = Path(unquote(urlsplit(origin.url).path))
        return of_clone(folder, folder)
    return f"{name_of_remote(origin.url)}@{origin.vcs_info.get('commit_id')}"
