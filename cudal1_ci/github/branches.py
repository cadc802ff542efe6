"""Make a patch a draft pull request on GitHub itself, without a checkout or git.

All files of the patch are one commit, through the Git data API, so no reader ever sees half of it.
Its parent is the commit that the patch was made for, whatever commits the branch has gained since.
A second request for the same branch finds the first pull request, also where that was closed: the
person who closed it has answered.

    open_pull(client, Proposed(patch=..., base_sha=head, base_branch="topic", branch="cudal1-ci/x",
                               title="Faster pool", body="..."))

Raises a `Refusal` with what was wrong, or with what GitHub said.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.answer import Made, Refusal
from cudal1_ci.github.edit import edited, files_to_edit
from cudal1_ci.records import Record
from cudal1_ci.render.hunks import FileDiff

if TYPE_CHECKING:
    from cudal1_ci.github.client import Client

FILE_MODES = ("100644", "100755")
"""Git's modes of files with contents: no link, no submodule."""
MAX_FILE_BYTES = 2**20
_BRANCH = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)*")


class Proposed(Record, frozen=True, kw_only=True):
    """Describe a change that people may take."""

    patch: str
    base_sha: str
    """The commit that the patch applies to."""
    base_branch: str
    """The branch that the pull request is to be merged into."""
    branch: str
    """The branch that is made for it; the same change should have the same name."""
    title: str
    body: str


def open_pull(client: Client, proposed: Proposed) -> Made:
    """Return the draft pull request, made now or found; `id` is its number.

    Raises:
        Refusal: The patch does not apply, touches what it must not, or GitHub does not do it.
    """
    if _BRANCH.fullmatch(proposed.branch) is None or ".." in proposed.branch:
        raise Refusal(f"expected the name of a branch, got {proposed.branch[:200]!r}")
    found = _pull_of(client, proposed)
    if found is not None:
        return found
    try:
        files = files_to_edit(proposed.patch)
        tree = _tree(client, proposed.base_sha, files)
    except ForgeError as error:
        raise error if isinstance(error, Refusal) else Refusal(str(error)) from error
    _make_branch(client, proposed, tree)
    made = client.write(
        "POST",
        "pulls",
        {
            "title": proposed.title,
            "head": proposed.branch,
            "base": proposed.base_branch,
            "body": proposed.body,
            "draft": True,
        },
    )
    return _made_pull(made)


def _pull_of(client: Client, proposed: Proposed) -> Made | None:
    """Return this branch's existing pull request: open, merged or closed."""
    owner = client.repository.partition("/")[0]
    pulls = client.read(
        "pulls", state="all", head=f"{owner}:{proposed.branch}", base=proposed.base_branch
    )
    return _made_pull(pulls[0]) if pulls else None


def _made_pull(pull: Mapping[str, Any]) -> Made:
    return Made(id=pull["number"], url=pull["html_url"])


def _tree(client: Client, base_sha: str, files: tuple[FileDiff, ...]) -> str:
    """Return the commit's tree with the files changed.

    Raises:
        ForgeError: The patch was made for another text of a file.
    """
    base_tree = client.read(f"git/commits/{base_sha}")["tree"]["sha"]
    entries = []
    for file in files:
        known = _entry(client, base_tree, file.path)
        before = _text(client, known, file.path) if known else None
        entries.append(
            {
                "path": file.path,
                "mode": known["mode"] if known else FILE_MODES[0],
                "type": "blob",
                "content": edited(file, before),
            }
        )
    made = client.write("POST", "git/trees", {"base_tree": base_tree, "tree": entries})
    return str(made["sha"])


def _entry(client: Client, tree: str, path: str) -> Mapping[str, Any] | None:
    """Return what git's tree holds of a file; None where there is none.

    Raises:
        ForgeError: The path leads through a link or to one, or is a folder.
    """
    parts = path.split("/")
    for i, name in enumerate(parts, 1):
        listed = client.read(f"git/trees/{tree}")
        found = next((each for each in listed["tree"] if each["path"] == name), None)
        if found is None and listed.get("truncated"):
            raise ForgeError(f"{path}: its folder has more files than GitHub lists")
        if found is None:
            return None
        is_last = i == len(parts)
        if is_last and found["type"] == "blob" and found["mode"] in FILE_MODES:
            return dict(found)
        if is_last or found["type"] != "tree":
            raise ForgeError(f"{path}: expected a file, found a link, a folder or a submodule")
        tree = found["sha"]
    return None


def _text(client: Client, entry: Mapping[str, Any], path: str) -> str:
    if entry.get("size", 0) > MAX_FILE_BYTES:
        raise ForgeError(f"{path}: expected at most {MAX_FILE_BYTES} bytes, got {entry['size']}")
    blob = client.read(f"git/blobs/{entry['sha']}")
    try:
        return base64.b64decode(blob["content"]).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ForgeError(f"{path}: expected text in UTF-8, found other bytes") from error


def _make_branch(client: Client, proposed: Proposed, tree: str) -> None:
    """Make the branch, or accept the one that an earlier attempt left with the same contents.

    Raises:
        Refusal: A branch of that name holds something else, or it cannot be made.
    """
    parents = [proposed.base_sha]
    message = f"{proposed.title}\n\n{proposed.body}"
    commit = client.write(
        "POST", "git/commits", {"message": message, "tree": tree, "parents": parents}
    )
    ref = {"ref": f"refs/heads/{proposed.branch}", "sha": commit["sha"]}
    try:
        client.write("POST", "git/refs", ref)
    except Refusal as refusal:
        if not refusal.is_unprocessable:
            raise
        there = client.read(f"git/ref/heads/{proposed.branch}")
        known = client.read(f"git/commits/{there['object']['sha']}")
        if (known["tree"]["sha"], [p["sha"] for p in known["parents"]]) != (tree, parents):
            raise Refusal(
                f"the branch {proposed.branch} is there already and holds something else; remove it"
            ) from refusal
