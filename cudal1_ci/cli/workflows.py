"""Fill the templates of workflows for `cudal1-ci init --workflows`, and renew what an older version
wrote.

A template is a dozen lines that call a reusable workflow of the Action's repository. Filled in are
the Action's commit or tag, the machines and the default branch.

    rendered("cudal1-ci.yml", "owner/cudal1-ci@v0", [machine_of_label("h100")])
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple
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
    "merge-queue": (),  # another event of the first
    "sweep": ("cudal1-ci-sweep.yml",),
    "trend": ("cudal1-ci-trend.yml",),
}
GONE = ("cudal1-ci-merge-queue.yml",)
"""What an older version wrote and no version needs now."""

OF_PROJECTS = (ALWAYS, "cudal1-ci-commands.yml", "cudal1-ci-forks.yml")
OF_A_FOLDER = (
    "cudal1-ci-code-scanning.yml",
    "cudal1-ci-on-request.yml",
    "cudal1-ci-sweep.yml",
    "cudal1-ci-trend.yml",
)
"""Workflows by the input that names a project in a folder of the repository."""

PLACEHOLDER = re.compile(r"OWNER/cudal1-ci(?P<path>(?:/[\w.-]+)*)@0{40} # v[\d.]+")
MACHINES = re.compile(r"(?P<before>machines: )'[^'\n]*'")
BRANCHES = re.compile(r"(?P<before>push: \{branches: )\[main\]")
WITH = re.compile(r"^    with: \{(?P<given>machines: '[^'\n]*')\}$", re.MULTILINE)
LAST_INPUT = re.compile(r"^      machines: '[^'\n]*'$", re.MULTILINE)
ACTION = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}|v\d+(?:\.\d+){0,2})", re.ASCII
)
LABEL = re.compile(r"[A-Za-z0-9][\w.-]*")
ODD = re.compile(r"[^\w.-]+")
HOSTED = re.compile(r"(?P<system>ubuntu|windows|macos)-")

Machine = dict[str, Any]
"""A `name`, `runs-on` as in a workflow: a label, labels, or a group; whether it has a `gpu`."""


def machine_of_label(label: str) -> Machine:
    """Return the machine of `--gpu LABEL`: a self-hosted runner with a label of its own.

    Raises: ConfigError.
    """
    if not LABEL.fullmatch(label):
        raise ConfigError(
            f"--gpu {label}: expected the label of a runner: letters, digits, `-`, `_`, `.`"
        )
    if HOSTED.match(label):
        raise ConfigError(
            f"--gpu {label}: is a machine of GitHub's, which has no label `self-hosted`; give it "
            f"as it is: --runs-on {label}"
        )
    return {"name": label, "runs-on": ["self-hosted", label], "gpu": True}


def machine_of_runs_on(text: str) -> Machine:
    """Return the machine of `--runs-on TEXT`, as a workflow would name it: a label (a scale set's
    or a larger runner's name), labels with commas, or `group=NAME`.

    Raises: ConfigError.
    """
    group, _, labels = text.partition(",") if text.startswith("group=") else ("", "", text)
    names = [label.strip() for label in labels.split(",") if label.strip()]
    if any(not LABEL.fullmatch(name) for name in names) or not (names or group):
        raise ConfigError(
            f"--runs-on {text}: expected a label, several with commas, or group=NAME[,LABEL...]"
        )
    for name in names:
        found = HOSTED.match(name)
        if found and found["system"] != "ubuntu":
            raise ConfigError(f"--runs-on {text}: cudal1-ci needs Linux, such as ubuntu-latest")
    if group:
        of_group = group.removeprefix("group=")
        labels_of = {"labels": names} if names else {}
        return {"name": ODD.sub("-", of_group), "runs-on": {"group": of_group, **labels_of}}
    return {"name": names[-1], "runs-on": names[0] if len(names) == 1 else names}


class Choice(NamedTuple):
    """What is filled into the templates."""

    action: str
    machines: Sequence[Machine]
    also: Sequence[str] = ()
    branch: str = "main"
    project: str = "."
    """Its folder, below the top of the repository."""
    has_submodules: bool = False


def workflow_files(choice: Choice) -> dict[str, str]:
    """Return workflows by their name in .github/workflows.

    Raises:
        ConfigError: The action has a wrong form, or two machines have one name.
    """
    names = [one["name"] for one in choice.machines]
    if len(set(names)) != len(names):
        raise ConfigError(f"two machines have one name: {', '.join(names)}")
    return {
        name: rendered(name, choice)
        for name in (ALWAYS, *(name for one in choice.also for name in ALSO[one]))
    }


def rendered(name: str, choice: Choice) -> str:
    """Fill one workflow."""
    text = (templates_folder() / "workflows" / name).read_text(encoding="utf-8")
    machines = json.dumps(list(choice.machines), ensure_ascii=False)
    text = MACHINES.sub(lambda found: f"{found['before']}'{machines}'", text)
    text = BRANCHES.sub(lambda found: f"{found['before']}[{json.dumps(choice.branch)}]", text)
    if name == ALWAYS and "merge-queue" in choice.also:
        text = text.replace("permissions: {}\n", "  merge_group:\npermissions: {}\n", 1)
    further = further_inputs(name, choice).items()
    more = "".join(f", {key}: {value}" for key, value in further)
    text = WITH.sub(lambda found: f"    with: {{{found['given']}{more}}}", text)
    lines = "".join(f"\n      {key}: {value}" for key, value in further)
    text = LAST_INPUT.sub(lambda found: f"{found[0]}{lines}", text)
    return pinned(text, choice.action)


def further_inputs(name: str, choice: Choice) -> dict[str, str]:
    """Return the inputs of a workflow besides its machines, as YAML."""
    given = {}
    if name == ALWAYS and "commands" in choice.also:
        given["commands"] = '"true"'
    if name == ALWAYS and choice.has_submodules:
        given["submodules"] = "recursive"
    if choice.project != "." and name in OF_PROJECTS:
        projects = json.dumps([choice.project], ensure_ascii=False).replace("'", "''")
        given["projects"] = f"'{projects}'"
    elif choice.project != "." and name in OF_A_FOLDER:
        given["path"] = json.dumps(choice.project, ensure_ascii=False)
    return given


def pinned(text: str, action: str) -> str:
    """Name the Action's repository and commit, or tag. Raises: ConfigError."""
    match = ACTION.fullmatch(action)
    if match is None:
        raise ConfigError(
            f"--action {action}: expected OWNER/NAME@COMMIT with all 40 digits of the commit, or a "
            "tag of a release such as OWNER/NAME@v0"
        )
    is_tag = match["commit"].startswith("v")
    said = "" if is_tag else f" # v{cudal1_ci.__version__}"
    return PLACEHOLDER.sub(
        lambda found: f"{match['name']}{found['path']}@{match['commit']}{said}", text
    )


# --- what an older version wrote ---------------------------------------------------------------

CALLED = re.compile(
    r"(?P<before>uses: )[\w.-]+/[\w.-]+(?P<path>/\.github/workflows/[\w-]+\.yml)@\S+( # v[\d.]+)?"
)
MEASURES = re.compile(
    r"^(?P<indent> +)- uses: (?!actions/)[\w.-]+/[\w.-]+@[0-9a-f]{40}(?: # v[\d.]+)?\n"
    r"(?P<with>(?P=indent)  with:\n(?:(?P=indent)    .*\n)*)",
    re.MULTILINE,
)
GIVEN = re.compile(r"^ +(?P<name>[a-z-]+): (?P<value>[^#\n]+?) *(?:#.*)?$", re.MULTILINE)
OLD_GPUS = re.compile(r"^ +gpu: \[(?P<gpus>[^\]\n]*)\]", re.MULTILINE)
OWN_STEP = re.compile(
    r"^ +- (?P<what>run: .*|name: .*|uses: (?!actions/(?:checkout|download-artifact)@)(?![\w.-]+/"
    r"[\w.-]*cudal1-ci)(?!github/codeql-action|actions/(?:upload-pages|deploy-pages)).*)$",
    re.MULTILINE,
)
NOT_CARRIED = frozenset({"artifact-name", "base", "compare"})


class Renewed(NamedTuple):
    """A workflow as this version writes it, and the user's steps that it has no place for."""

    text: str
    lost: tuple[str, ...] = ()


def renewed(name: str, old: str, choice: Choice) -> Renewed:
    """Return a workflow of an older version as this one writes it. What calls a reusable workflow
    keeps all but its version; of a copied one the machines and the inputs of the Action are kept.
    """
    if CALLED.search(old):
        return Renewed(
            CALLED.sub(lambda f: f["before"] + pinned_path(f["path"], choice.action), old)
        )
    found = OLD_GPUS.search(old)
    machines = choice.machines
    if found is not None:
        labels = [label.strip() for label in found["gpus"].split(",") if label.strip()]
        machines = [machine_of_label(label) for label in labels]
    text = rendered(name, choice._replace(machines=machines))
    step = MEASURES.search(old)
    given = {one["name"]: one["value"] for one in GIVEN.finditer(step["with"])} if step else {}
    folder = given.pop("path", ".").strip("'\"")
    if folder != ".":
        given["projects"] = f"'{json.dumps([folder])}'"
    kept = "".join(
        f"      {key}: {value}\n"
        for key, value in given.items()
        if key not in NOT_CARRIED and value not in ("python", '"python"') and "${{" not in value
    )
    if kept and name == ALWAYS:
        text = WITH.sub(lambda found: f"    with:\n      {found['given']}\n{kept.rstrip()}", text)
    return Renewed(text, tuple(one["what"] for one in OWN_STEP.finditer(old)))


def pinned_path(path: str, action: str) -> str:
    return pinned(f"OWNER/cudal1-ci{path}@{40 * '0'} # v0", action)


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
