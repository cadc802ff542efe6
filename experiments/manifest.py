"""Write cudal1_ci/assets.json, which names every file of assets/ with its hash and size.

    python experiments/manifest.py

Of a result it also states device, commit and command, where the raw file states them; what the
manifest already says of the same file, and its raw file does not, is kept.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from cudal1_ci import assets

FACTS = ("device", "commit", "command")


def entries(root: Path, known: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an entry for every file below a folder."""
    return [
        entry(file, file.relative_to(root).as_posix(), known)
        for file in sorted(root.rglob("*"))
        if file.is_file()
    ]


def entry(file: Path, path: str, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the manifest says of a file."""
    same = {"path": path, "sha256": assets.sha256(file), "bytes": file.stat().st_size}
    before = known.get(path, {})
    kept = {fact: before[fact] for fact in FACTS if fact in before}
    return same | kept | stated(file)


def stated(file: Path) -> dict[str, str]:
    """Return device, commit and command, where a result states them."""
    if ".json" not in file.suffixes or file.parent.name != "results":
        return {}
    content = file.read_bytes()
    document = json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)
    found = {
        "device": device_of(document),
        "commit": document.get("commit"),
        "command": document.get("command"),
    }
    # Measured when this folder had another name.
    return {
        fact: text.replace("benchmarks/", "experiments/") for fact, text in found.items() if text
    }


def device_of(document: dict[str, Any]) -> str | None:
    """Return what a result was measured on, by the forms that the experiments write."""
    for part in (document, document.get("ours", {})):
        if device := part.get("device"):
            return device["name"] if isinstance(device, dict) else str(device)
    for run in document.get("runs", []):
        if devices := run.get("devices"):
            return str(devices[0])
    return document.get("processor")


def written(document: list[dict[str, Any]]) -> str:
    """Return the manifest's text: one line an asset, so that a change is seen in a diff."""
    lines = ",\n".join(json.dumps(one) for one in document)
    return f"[\n{lines}\n]\n"


def main() -> None:
    before = json.loads(assets.MANIFEST.read_text("utf-8")) if assets.MANIFEST.exists() else []
    known = {one["path"]: one for one in before}
    assets.MANIFEST.write_text(written(entries(assets.CHECKOUT, known)), encoding="utf-8")


if __name__ == "__main__":
    main()
