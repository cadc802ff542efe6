"""The git of the GitHub on this machine: commits, trees, blobs and branches.

It refuses what GitHub refuses: objects that are not there (404), a tree with a mode that is none, a
commit whose parents are not there, a branch that exists already (422).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

MODES = {"100644", "100755", "040000", "160000", "120000"}

Files = dict[str, tuple[str, str]]
"""Mode and text by path."""


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


@dataclass
class GitData:
    """What was committed."""

    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, Any]] = field(default_factory=dict)
    trees: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    _files: dict[str, Files] = field(default_factory=dict)
    """Of a tree at the top of a commit."""

    def put(self, branch: str, files: Files, sha: str) -> None:
        """A commit under a name of the test's choice, as the head of a branch."""
        self.commits[sha] = {"sha": sha, "tree": {"sha": self._store(files)}, "parents": []}
        self.branches[branch] = sha

    def files_of(self, sha: str) -> Files:
        return self._files[self.commits[sha]["tree"]["sha"]]

    # --- answering ---------------------------------------------------------------------------

    def commit(self, sha: str) -> dict[str, Any]:
        return _found(self.commits, sha)

    def tree(self, sha: str) -> dict[str, Any]:
        return {"sha": sha, "tree": _found(self.trees, sha), "truncated": False}

    def blob(self, sha: str) -> dict[str, Any]:
        content = base64.encodebytes(_found(self.blobs, sha)).decode()
        return {"sha": sha, "content": content, "encoding": "base64"}

    def ref(self, name: str) -> dict[str, Any]:
        return {"ref": f"refs/heads/{name}", "object": {"sha": _found(self.branches, name)}}

    def create_tree(self, given: dict[str, Any]) -> dict[str, Any]:
        files = dict(_found(self._files, given["base_tree"]))
        for entry in given["tree"]:
            if entry["mode"] not in MODES or entry["path"].startswith("/"):
                raise Refused(422, "tree.mode is not one of those of git")
            files[entry["path"]] = (entry["mode"], entry["content"])
        return self.tree(self._store(files))

    def create_commit(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["tree"] not in self._files or not set(given["parents"]) <= self.commits.keys():
            raise Refused(422, "Tree SHA or parent does not exist")
        if not given["message"]:
            raise Refused(422, "Validation Failed")
        sha = _sha("commit", repr(given).encode())
        parents = [{"sha": parent} for parent in given["parents"]]
        self.commits[sha] = {"sha": sha, "tree": {"sha": given["tree"]}, "parents": parents}
        return self.commits[sha]

    def create_ref(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["ref"].removeprefix("refs/heads/")
        if name == given["ref"] or given["sha"] not in self.commits:
            raise Refused(422, "Object does not exist")
        if name in self.branches:
            raise Refused(422, "Reference already exists")
        self.branches[name] = given["sha"]
        return self.ref(name)

    # --- storing -----------------------------------------------------------------------------

    def _store(self, files: Files) -> str:
        sha = self._store_folder("", files)
        self._files[sha] = files
        return sha

    def _store_folder(self, prefix: str, files: Files) -> str:
        entries = []
        inside = {
            path.removeprefix(prefix): file
            for path, file in files.items()
            if path.startswith(prefix)
        }
        for name in sorted({path.split("/")[0] for path in inside}):
            if name not in inside:
                sha = self._store_folder(f"{prefix}{name}/", files)
                entries.append({"path": name, "mode": "040000", "type": "tree", "sha": sha})
                continue
            mode, text = inside[name]
            sha = _sha("blob", text.encode())
            self.blobs[sha] = text.encode()
            kind = "commit" if mode == "160000" else "blob"
            size = len(text.encode())
            entries.append({"path": name, "mode": mode, "type": kind, "sha": sha, "size": size})
        sha = _sha("tree", repr(entries).encode())
        self.trees[sha] = entries
        return sha


def _sha(kind: str, contents: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(contents)}\0".encode() + contents).hexdigest()


def _found(kept: dict[str, Any], name: str) -> Any:
    if name not in kept:
        raise Refused(404, "Not Found")
    return kept[name]
