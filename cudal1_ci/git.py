"""Ask git for trees, diffs and merge bases of a checkout.

Runs git's command line and does not deal with targets. Only reads: no lock, no fetch, no prompt, no
hook and no user's pager or diff tool. The change is from the merge base of BASE and HEAD to the
working tree as it is, with uncommitted and untracked work. It can also be from one commit to
another.

    change = working_tree_change(Path("."), "origin/main")
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.records import Change, FileChange

RELATIVE = re.compile(r"[~^@]")
"""Characters of `HEAD~3`, `v1^`, `main@{1}`, which are no names on a remote."""
DEEPER = "git fetch --unshallow (in Actions: fetch-depth: 0)"
SETTINGS_VARIABLE = "CUDAL1_GIT_SETTINGS"
"""Names git's settings in a job: they say that the workspace may belong to another user."""
OWNED_BY_ANOTHER = "detected dubious ownership"
GIT_TIMEOUT_S = 60.0
READS_FILES = ("diff", "status")
"""Commands that compare files of the working tree, through the filters of the repository."""
SOURCE_SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl")
# A larger file is data; discovery skips it too.
MAX_FILE_BYTES = 2_000_000
# https://host/owner/name.git and user@host:owner/name; not the path of a local clone.
_REMOTE = re.compile(
    r"(?:(?!file:)\w+://.*/|[\w.-]+@[^/:]+:(?:.*/)?)(?P<name>[^/:]+/[^/]+?)(?:\.git)?/?"
)
_WEB = re.compile(
    r"(?:https?://(?:[^/@]*@)?|ssh://[\w.-]+@|[\w.-]+@)(?P<host>[\w.-]+\.[A-Za-z]+)[:/]"
    r"(?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)


class Difference(NamedTuple):
    """Hold one line of `git diff --name-status`: paths relative to the top of the repository."""

    status: str
    before: str | None
    after: str | None


def working_tree_change(root: Path, base: str) -> Change:
    """Return what the working tree below `root` changed since it left `base`.

    Raises: DiscoveryError when `root` is in no git repository, `base` names no commit, or the
    available history (a shallow clone) does not reach the merge base.
    """
    top = repository_top(root)
    merge_base = common_ancestor(top, base)
    files = changed_files(top, root, merge_base, None)
    return Change(
        repository=repository_name(root),
        base_sha=merge_base,
        head_sha=head_sha(root) if is_clean(top) else None,
        files=files,
    )


def is_clean(top: Path) -> bool:
    """Return whether the working tree has no uncommitted or untracked file."""
    return not run_git(top, "status", "--porcelain=v1", "--untracked-files=normal").strip()


def committed_change(root: Path, base: str, head: str) -> Change:
    """Return what the commit `head` changed below `root` since it left `base`.

    The working tree does not matter.

    Raises: DiscoveryError as `working_tree_change` does.
    """
    top = repository_top(root)
    head_commit = commit_of(top, head)
    merge_base = common_ancestor(top, base, head_commit)
    return Change(
        repository=repository_name(root),
        base_sha=merge_base,
        head_sha=head_commit,
        files=changed_files(top, root, merge_base, head_commit),
    )


def changed_files(top: Path, root: Path, base: str, head: str | None) -> tuple[FileChange, ...]:
    """Return source files that differ between two commits, or a commit and the working tree."""
    found = (
        file_change(top, root, base, head, difference)
        for difference in differences(top, root, base, head)
    )
    files = [file for file in found if file is not None]
    return tuple(sorted(files, key=lambda file: file.path))


def commit_of(top: Path, name: str) -> str:
    """Return the commit that a branch, a tag or a hash means.

    Raises: DiscoveryError when there is none.
    """
    if name.startswith("-"):
        raise DiscoveryError(f"{name}: expected a branch, tag or commit")
    try:
        return run_git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except DiscoveryError as error:
        fix = f"fetch it (git fetch origin {name.removeprefix('origin/')})"
        if is_shallow(top):
            fix = f"the clone is shallow: {DEEPER}"
        elif RELATIVE.search(name):
            fix = "fetch more of the history (git fetch --unshallow, where it was cut)"
        raise DiscoveryError(
            f"{name}: no such branch, tag or commit here; {fix} or name another"
        ) from error


def is_shallow(top: Path) -> bool:
    """Return whether the clone's history was cut."""
    return run_git(top, "rev-parse", "--is-shallow-repository").strip() == "true"


def head_sha(root: Path) -> str | None:
    """Return the checked out commit; None outside of git and before the first commit."""
    try:
        return run_git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip() or None
    except DiscoveryError:
        return None


def repository_name(root: Path) -> str:
    """Return `owner/name` of the remote `origin`, else the name of the project in `pyproject.toml`,
    else that of the repository's folder.
    """
    try:
        name = name_of_remote(run_git(root, "config", "--get", "remote.origin.url").strip())
        if name is not None:
            return name
    except DiscoveryError:
        pass  # no such remote, or no repository
    try:
        top = Path(run_git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DiscoveryError:
        top = root.resolve()
    return _project_name(root) or _project_name(top) or top.name


def _project_name(folder: Path) -> str | None:
    """Return `project.name`; None where the file is missing or has no such text."""
    try:
        found = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        name = found["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name.strip() if isinstance(name, str) and name.strip() else None


def web_address(root: Path, repository: str) -> str | None:
    """Return where a repository's files can be looked at: `https://github.com/owner/name`. None
    where the remote `origin` is another repository or has no such address.
    """
    try:
        url = run_git(root, "config", "--get", "remote.origin.url").strip()
    except DiscoveryError:
        return None
    match = _WEB.fullmatch(url)
    if match is None or match["name"] != repository:
        return None
    return f"https://{match['host']}/{repository}"


def name_of_remote(url: str) -> str | None:
    """Return `owner/name` of a repository's address; None for an address of another form."""
    match = _REMOTE.fullmatch(url)
    return match["name"] if match else None


def folder_in_repository(root: Path) -> str:
    """Return `root` below the top of its repository; `.` for the top or without a repository."""
    try:
        top = repository_top(root)
    except DiscoveryError:
        return "."
    return root.resolve().relative_to(top.resolve()).as_posix()


def repository_top(root: Path) -> Path:
    """Return the top of the repository of `root`. Raises: DiscoveryError when there is none."""
    if not root.is_dir():
        raise DiscoveryError(f"{root}: expected a folder in a git repository, there is none")
    try:
        return Path(run_git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
    except DiscoveryError as error:
        raise DiscoveryError(
            f"{root}: finding what changed needs a git repository ({error}); name a folder of one"
        ) from error


def common_ancestor(top: Path, base: str, head: str = "HEAD") -> str:
    """Return the commit at which `head` left `base`."""
    sha = commit_of(top, base)
    if head_sha(top) is None:
        raise DiscoveryError(f"{top}: has no commit yet, so there is nothing to compare with")
    try:
        return run_git(top, "merge-base", sha, head).strip()
    except DiscoveryError as error:
        if is_shallow(top):
            fix = f"the clone is shallow: {DEEPER}"
        else:
            fix = "the two histories have no commit in common"
        raise DiscoveryError(f"{base}: no merge base with {head[:12]}; {fix}") from error


def differences(top: Path, root: Path, base: str, head: str | None) -> Iterator[Difference]:
    """Yield source files below `root` that differ; in a working tree also untracked files."""
    below = root.resolve().relative_to(top.resolve()).as_posix()
    listed = run_git(
        top,
        "diff",
        "--name-status",
        "-z",
        "-M",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules",
        base,
        *([] if head is None else [head]),
        "--",
        below,
    )
    fields = iter(listed.split("\0"))
    for status in fields:
        if not status:
            continue
        path = next(fields)
        match status[0]:
            case "R" | "C":
                copied_to = next(fields)
                yield Difference(status[0], path, copied_to)
            case "A":
                yield Difference("A", None, path)
            case "D":
                yield Difference("D", path, None)
            case _:
                yield Difference("M", path, path)
    if head is not None:
        return
    untracked = run_git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", below)
    for path in filter(None, untracked.split("\0")):
        yield Difference("A", None, path)


def file_change(
    top: Path, root: Path, base: str, head: str | None, difference: Difference
) -> FileChange | None:
    """Return both texts of a file; None for what is no source, or has no text on either side."""
    path = difference.after or difference.before or ""
    if not path.endswith(SOURCE_SUFFIXES):
        return None
    before = None
    if difference.before is not None and difference.status != "C":
        before = committed_text(top, base, difference.before)
    after = None
    if difference.after is not None:
        there = top / difference.after
        after = current_text(there) if head is None else committed_text(top, head, difference.after)
    if before is None and after is None:
        return None
    below = root.resolve().relative_to(top.resolve())
    is_renamed = difference.status == "R" and before is not None
    return FileChange(
        path=relative(path, below),
        previous_path=relative(difference.before or "", below) if is_renamed else None,
        before=before,
        after=after,
    )


def relative(path: str, below: Path) -> str:
    """Return a path relative to the scanned folder; a path from outside stays as it is."""
    try:
        return Path(path).relative_to(below).as_posix()
    except ValueError:
        return path


def committed_text(top: Path, commit: str, path: str) -> str | None:
    """Return a file's text in a commit; None if it has no text."""
    return decoded(git_output(top, "cat-file", "blob", f"{commit}:{path}"))


def current_text(path: Path) -> str | None:
    """Return a file's current text; None when the file is gone, unreadable or no text."""
    try:
        return decoded(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None


def decoded(content: bytes) -> str | None:
    """Decode a source file; return None if it is too large or not UTF-8."""
    if len(content) > MAX_FILE_BYTES:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def run_git(folder: Path, *arguments: str) -> str:
    """Return git's output. Raises: DiscoveryError with git's last line when git fails."""
    return git_output(folder, *arguments).decode("utf-8", "surrogateescape")


def git_output(folder: Path, *arguments: str) -> bytes:
    off = filters_off(folder) if arguments[0] in READS_FILES else []
    return git_done(folder, arguments, off)


def filters_off(folder: Path) -> list[str]:
    """Return the options that turn off every filter of git's configuration. A filter is a program,
    and an earlier job of a kept machine may have named one."""
    try:
        names = git_done(folder, ("config", "--name-only", "-z", "--get-regexp", r"^filter\."))
    except DiscoveryError:  # none is configured, or there is no repository
        return []
    read = names.decode("utf-8", "surrogateescape").split("\0")
    drivers = {name[len("filter.") :].rpartition(".")[0] for name in read if name}
    off = {"smudge": "", "clean": "", "process": "", "required": "false"}
    return [
        word
        for driver in sorted(drivers)
        for key, value in off.items()
        for word in ("-c", f"filter.{driver}.{key}={value}")
    ]


def git_done(folder: Path, arguments: Sequence[str], options: Sequence[str] = ()) -> bytes:
    off = ("-c", "core.quotePath=false", "-c", "core.fsmonitor=false", *options)
    command = ["git", *off, *arguments]
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            env=git_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise DiscoveryError(f"{folder}: no such folder") from error
        raise DiscoveryError("git was not found on PATH; install it") from error
    except subprocess.TimeoutExpired as error:
        raise DiscoveryError(
            f"git {arguments[0]} took more than {GIT_TIMEOUT_S:.0f} s in {folder}"
        ) from error
    if result.returncode != 0:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        if OWNED_BY_ANOTHER in "".join(lines):
            raise DiscoveryError(
                f"{folder}: belongs to another user, so git does not read it; if you trust it: "
                f"git config --global --add safe.directory {shlex.quote(str(folder.resolve()))}"
            )
        fatal = [line for line in lines if line.startswith("fatal:")] or lines
        raise DiscoveryError(fatal[0] if fatal else f"git {arguments[0]} failed")
    return result.stdout


def git_environment() -> dict[str, str]:
    """Return the environment without what would redirect git, make it prompt, or make it write."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if os.environ.get(SETTINGS_VARIABLE):
        kept["GIT_CONFIG_GLOBAL"] = os.environ[SETTINGS_VARIABLE]
    return kept | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }
