"""The workflows that `cudal1-ci init --workflows` writes: templates with three things filled in.

Those in templates/workflows run as they stand, but for the commit of the Action, which is all
zeros there; examples/workflows shows the same text.

    rendered("cudal1-ci.yml", "owner/cudal1-ci@" + 40 * "f", ["h100", "a100"])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import cudal1_ci
from cudal1_ci.errors import ConfigError, CudaL1Error
from cudal1_ci.forge.local import head_sha, repository_name, repository_top
from cudal1_ci.templates_path import templates_folder

ALWAYS = "cudal1-ci.yml"
ALSO = {
    "commands": ("cudal1-ci-commands.yml", "cudal1-ci-on-request.yml"),
    "forks": ("cudal1-ci-forks.yml",),
    "history": ("cudal1-ci-history.yml",),
    "merge-queue": ("cudal1-ci-merge-queue.yml",),
    "sweep": ("cudal1-ci-sweep.yml",),
}

PLACEHOLDER = re.compile(r"OWNER/cudal1-ci(?P<folder>(?:/\w+)?)@0{40} # v[\d.]+")
MATRIX = re.compile(r"^(?P<before> +gpu: )\[gpu\]", re.MULTILINE)
ACTION = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40})")
REPORTS = re.compile(r"^(?P<indent> +)reports: [^\n]+\n", re.MULTILINE)
NAMED = 'commands: "true"\n'
LABEL = re.compile(r"[A-Za-z0-9][\w.-]*")


def workflow_files(also: Sequence[str], action: str | None, gpus: Sequence[str]) -> dict[str, str]:
    """Workflows by their name in .github/workflows.

    Raises:
        ConfigError: A label or the action is not of its form, or nobody knows where the Action is.
    """
    action = action or own_action()
    names = (ALWAYS, *(name for one in also for name in ALSO[one]))
    files = {name: rendered(name, action, gpus) for name in names}
    if "commands" in also:
        files = {name: named_commands(text) for name, text in files.items()}
    return files


def named_commands(text: str) -> str:
    """A workflow whose comments name the commands, for where there is what answers them."""
    if NAMED in text:
        return text
    return REPORTS.sub(lambda found: found[0] + found["indent"] + NAMED, text)


def rendered(name: str, action: str, gpus: Sequence[str]) -> str:
    """A workflow with the Action's commit and the labels of the runners."""
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
    """The Action of the checkout that this runs from.

    Raises:
        ConfigError: It runs from no checkout, or from one whose remote is no forge's.
    """
    package = Path(cudal1_ci.__file__).resolve().parent
    try:
        top = repository_top(package)
        name, commit = repository_name(package), head_sha(package)
    except CudaL1Error:
        top, name, commit = None, "", None
    if top != package.parent or not ACTION.fullmatch(f"{name}@{commit}"):
        raise ConfigError(
            "--workflows: it is not known where the Action is, since this is no clone of it; "
            "name it: --action OWNER/cudal1-ci@COMMIT"
        )
    return f"{name}@{commit}"
