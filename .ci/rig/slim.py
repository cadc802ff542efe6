"""Cuts GitHub's description of its API down to what the product asks: python slim.py WHOLE SLIM

The whole is 13 MB, and a proxy that has read it needs seven seconds and 400 MB; of this one it is
one second. Three things are added. Of most requests the description names few refusals or none,
where any may be refused, because the token is none, or may not write, or has asked too often. A
name with slashes in it, as a branch has, is a path of its own. And a fork may be gone.
"""

import copy
import json
import re
import sys
from pathlib import Path

REPOSITORY = "/repos/{owner}/{repo}"
PATHS = (
    "/user",
    REPOSITORY,
    REPOSITORY + "/actions/runs/{run_id}",
    REPOSITORY + "/actions/runs/{run_id}/rerun",
    REPOSITORY + "/actions/workflows/{workflow_id}/dispatches",
    REPOSITORY + "/check-runs",
    REPOSITORY + "/check-runs/{check_run_id}",
    REPOSITORY + "/collaborators/{username}/permission",
    REPOSITORY + "/commits/{ref}/check-runs",
    REPOSITORY + "/commits/{ref}/check-suites",
    REPOSITORY + "/contents/{path}",
    REPOSITORY + "/git/blobs/{file_sha}",
    REPOSITORY + "/git/commits",
    REPOSITORY + "/git/commits/{commit_sha}",
    REPOSITORY + "/git/ref/{ref}",
    REPOSITORY + "/git/refs",
    REPOSITORY + "/git/trees",
    REPOSITORY + "/git/trees/{tree_sha}",
    REPOSITORY + "/issues",
    REPOSITORY + "/issues/comments/{comment_id}",
    REPOSITORY + "/issues/comments/{comment_id}/reactions",
    REPOSITORY + "/issues/{issue_number}",
    REPOSITORY + "/issues/{issue_number}/comments",
    REPOSITORY + "/issues/{issue_number}/labels",
    REPOSITORY + "/pulls",
    REPOSITORY + "/pulls/comments/{comment_id}/reactions",
    REPOSITORY + "/pulls/{pull_number}",
    REPOSITORY + "/pulls/{pull_number}/comments",
    REPOSITORY + "/pulls/{pull_number}/comments/{comment_id}/replies",
    REPOSITORY + "/pulls/{pull_number}/files",
    REPOSITORY + "/pulls/{pull_number}/reviews",
)
FILES = tuple(
    REPOSITORY + "/contents/" + "/".join(f"{{part{place}}}" for place in range(depth))
    for depth in (2, 3, 4)
)
"""What `/contents/{path}` is of a file in folders."""
BRANCHES = (
    REPOSITORY + "/git/ref/heads/{branch}",
    REPOSITORY + "/git/ref/heads/{folder}/{branch}",
)
"""What `/git/ref/{ref}` is of a branch: the proxy takes a parameter for one segment of a path."""
REFUSALS = ("401", "403", "404", "422", "429", "500", "502", "503")


def slim(whole: dict) -> dict:
    """The paths of the product, and the components that they speak of."""
    missing = [path for path in PATHS if path not in whole["paths"]]
    if missing:
        sys.exit(f"GitHub's description has no {', '.join(missing)}: see {__file__}")
    kept = {path: copy.deepcopy(whole["paths"][path]) for path in PATHS}
    for operations in kept.values():
        for operation in operations.values():
            if "responses" in operation:
                add_refusals(operation["responses"])
    whole = with_deleted_forks(whole)
    kept |= {path: with_parts(kept[REPOSITORY + "/git/ref/{ref}"], path) for path in BRANCHES}
    kept |= {path: with_parts(kept[REPOSITORY + "/contents/{path}"], path) for path in FILES}
    seen: set[str] = set()
    walk(kept, whole, seen)
    components = {
        kind: {name: one for name, one in named.items() if f"#/components/{kind}/{name}" in seen}
        for kind, named in whole["components"].items()
    }
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": kept} | {
        "components": components
    }


def with_deleted_forks(whole: dict) -> dict:
    """A pull request outlives the repository that it came from, which is null then: GitHub answers
    so, and its description says that it does not."""
    made = copy.deepcopy(whole)
    schemas = made["components"]["schemas"]
    schemas["nullable-repository"] = {**schemas["repository"], "nullable": True}
    for name in ("pull-request", "pull-request-simple"):
        head = schemas[name]["properties"]["head"]["properties"]
        head["repo"] = {"$ref": "#/components/schemas/nullable-repository"}
    return made


def with_parts(operations: dict, path: str) -> dict:
    """The same operations with the parameters of another path."""
    made = copy.deepcopy(operations)
    names = re.findall(r"{(\w+)}", path.removeprefix(REPOSITORY))
    for method, operation in made.items():
        operation["operationId"] = f"{method}-{'-'.join(names)}"
        others = [
            one
            for one in operation["parameters"]
            if "git-ref" not in one.get("$ref", "") and one.get("name") != "path"
        ]
        operation["parameters"] = others + [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return made


def add_refusals(responses: dict) -> None:
    schema = {"$ref": "#/components/schemas/basic-error"}
    for status in REFUSALS:
        responses.setdefault(
            status,
            {"description": "Refused", "content": {"application/json": {"schema": schema}}},
        )


def walk(node: object, whole: dict, seen: set[str]) -> None:
    """Note every component that a node refers to, and those that they refer to."""
    if isinstance(node, list):
        for one in node:
            walk(one, whole, seen)
    elif isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            target: object = whole
            for part in reference.removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            walk(target, whole, seen)
        for one in node.values():
            walk(one, whole, seen)


if __name__ == "__main__":
    source, made = map(Path, sys.argv[1:])
    made.write_text(json.dumps(slim(json.loads(source.read_text("utf-8")))), encoding="utf-8")
