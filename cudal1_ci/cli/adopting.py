"""Open the pull request that brings cudal1-ci into a repository: `cudal1-ci init --pull-request`.

The working tree and its branch stay as they are: the commit is made of the head and the new files,
pushed to a branch of its own, and described with what would be measured (`scan --list`, which runs
nothing). With GITHUB_TOKEN the pull request is opened; without, its address is printed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from cudal1_ci.errors import ConfigError, CudaL1Error, UnsupportedError
from cudal1_ci.git import git_environment, repository_name, repository_top, run_git, web_address

BRANCH = "cudal1-ci/init"
TITLE = "Measure pull requests with cudal1-ci"
BODY = """\
This adds {files}.

Each pull request is compared with its base, and faster code is looked for in what it changes.
Nothing fails yet: `fail-on` is `never`. The settings in this pull request
already count for what is shown in it.

Tried without running anything, in `{folder}`:

{listing}
"""
MOST_CHARS = 50_000


class Adoption(NamedTuple):
    """The repository, and the files that it gets."""

    path: Path
    files: Mapping[Path, str]


def default_branch(path: Path) -> str:
    """Return the branch that a clone calls its remote's head; `main` where it knows none."""
    try:
        name = run_git(path, "symbolic-ref", "--short", "refs/remotes/origin/HEAD").strip()
    except CudaL1Error:
        return "main"
    return name.removeprefix("origin/")


def open_pull_request(one: Adoption, *, dry_run: bool) -> str:
    """Push the files and open a pull request, or say what it would be.

    Raises:
        ConfigError: There is no repository, or no remote `origin`.
        UnsupportedError: It cannot be pushed.
    """
    try:
        top = repository_top(one.path)
        run_git(top, "config", "--get", "remote.origin.url")
    except CudaL1Error as error:
        raise ConfigError(
            f"--pull-request needs a clone with a remote `origin`: {error}"
        ) from error
    body = description(one, top)
    if dry_run:
        texts = "".join(
            f"--- {file.resolve().relative_to(top.resolve())}\n{text}"
            for file, text in one.files.items()
        )
        return f"{texts}--- the pull request: {TITLE}\n{body}"
    push(top, commit_of_files(top, one.files))
    address = web_address(top, repository_name(top))
    base = default_branch(top)
    token = os.environ.get("GITHUB_TOKEN")
    if token and address:
        from cudal1_ci.github.client import open_branch  # imports PyGithub

        payload = {"title": TITLE, "body": body, "head": BRANCH, "base": base}
        tell = functools.partial(click.echo, err=True)
        return f"opened {open_branch(token, api_url(), repository_name(top), payload, tell)}\n"
    said = f"{address}/compare/{base}...{BRANCH}?expand=1" if address else f"branch {BRANCH}"
    return f"pushed {BRANCH}; open the pull request: {said}\n\n{body}"


def api_url() -> str:
    return os.environ.get("GITHUB_API_URL") or "https://api.github.com"


def description(one: Adoption, top: Path) -> str:
    """Return the text of the pull request, with what would be measured."""
    names = ", ".join(f"`{file.resolve().relative_to(top.resolve())}`" for file in one.files)
    folder = one.path.resolve().relative_to(top.resolve()).as_posix()
    listing = listing_of(one.path)
    if len(listing) > MOST_CHARS:
        listing = listing[:MOST_CHARS].rpartition("\n")[0] + "\n\n_and more._"
    return BODY.format(files=names, folder=folder, listing=listing)


def listing_of(path: Path) -> str:
    """Return what a scan would look at, as Markdown; nothing of the repository runs."""
    from cudal1_ci.cli.scan_options import plan_of  # imports all rooms
    from cudal1_ci.cli.scope import scope_of
    from cudal1_ci.config import load_settings
    from cudal1_ci.render import render
    from cudal1_ci.render.progress import progress_on
    from cudal1_ci.render.published import listing

    settings = load_settings(path, overrides={})
    progress = progress_on(sys.stderr, os.environ)
    return render(listing(plan_of(scope_of([path]), settings, progress, only_reads=True)), "md")


def commit_of_files(top: Path, files: Mapping[Path, str]) -> str:
    """Return a commit of the default branch's head and the files; no branch has it yet."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = git_environment() | {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        head = run_git(top, "rev-parse", "HEAD").strip()
        git(top, environment, ["read-tree", head])
        for file, text in files.items():
            blob = git(top, environment, ["hash-object", "-w", "--stdin"], text)
            path = file.resolve().relative_to(top.resolve()).as_posix()
            entry = f"100644,{blob},{path}"
            git(top, environment, ["update-index", "--add", "--cacheinfo", entry])
        tree = git(top, environment, ["write-tree"])
        return git(top, environment, ["commit-tree", tree, "-p", head, "-m", TITLE])


def push(top: Path, commit: str) -> None:
    try:
        git(top, git_environment(), ["push", "--quiet", "origin", f"{commit}:refs/heads/{BRANCH}"])
    except UnsupportedError as error:
        raise UnsupportedError(
            f"the branch {BRANCH} cannot be pushed ({error}); if it is there already, remove it, "
            "or write the files without --pull-request and push them yourself"
        ) from error


def git(top: Path, environment: dict[str, str], words: list[str], text: str = "") -> str:
    """Run git. Raises: UnsupportedError with its last line."""
    done = subprocess.run(
        ["git", *words], cwd=top, env=environment, input=text, capture_output=True, text=True
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["failed"]
        raise UnsupportedError(f"git {words[0]}: {said[-1]}")
    return done.stdout.strip()
