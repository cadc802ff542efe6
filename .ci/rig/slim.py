"""Cuts GitHub's description of its API down to what the product asks: python slim.py WHOLE SLIM

The whole is 13 MB, and a proxy that has read it needs seven seconds and 400 MB; of this one it is
one second. One thing is added: of most requests the description names few refusals or none, where
any may be refused, because the token is none, or may not write, or has asked too often.
"""

import copy
import json
import sys
from pathlib import Path

REPOSITORY = "/repos/{owner}/{repo}"
PATHS = (
    "/user",
    REPOSITORY + "/check-runs",
    REPOSITORY + "/check-runs/{check_run_id}",
    REPOSITORY + "/commits/{ref}/check-runs",
    REPOSITORY + "/issues/comments/{comment_id}",
    REPOSITORY + "/issues/{issue_number}/comments",
    REPOSITORY + "/pulls",
    REPOSITORY + "/pulls/{pull_number}",
    REPOSITORY + "/pulls/{pull_number}/comments",
    REPOSITORY + "/pulls/{pull_number}/files",
    REPOSITORY + "/pulls/{pull_number}/reviews",
)
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
    seen: set[str] = set()
    walk(kept, whole, seen)
    components = {
        kind: {name: one for name, one in named.items() if f"#/components/{kind}/{name}" in seen}
        for kind, named in whole["components"].items()
    }
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": kept} | {
        "components": components
    }


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
