"""Find weights and raw results by their hash: in the checkout, a cache, or at an address.

    path("results/third-party.json")                      # one file
    folder("adapters/qwen2.5-coder-0.5b-rewrites")        # all files of a folder, in one folder

`assets.json` next to this module names every asset with its SHA-256 and size. An asset is taken
from `assets/` of a checkout, else from the cache of this user, else from the address in the
variable CUDAL1_ASSETS_URL, which serves each under its hash. Whatever it comes from, it is used
only where its hash is the manifest's. Archives and wheels hold the manifest and no asset.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cudal1_ci.errors import UnsupportedError

MANIFEST = Path(__file__).with_name("assets.json")
CHECKOUT = Path(__file__).parents[1] / "assets"
URL_VARIABLE = "CUDAL1_ASSETS_URL"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Asset:
    """A file that is not source."""

    path: str
    sha256: str
    num_bytes: int


@cache
def manifest() -> Mapping[str, Asset]:
    """Return all assets by their path."""
    entries = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return {
        one["path"]: Asset(path=one["path"], sha256=one["sha256"], num_bytes=one["bytes"])
        for one in entries
    }


def path(name: str) -> Path:
    """Return where an asset lies, after its hash was checked.

    Raises:
        UnsupportedError: The manifest has no such asset, or it is nowhere to be had.
    """
    asset = manifest().get(name)
    if asset is None:
        raise UnsupportedError(f"{name}: no such asset in {MANIFEST.name}")
    base, _, file = name.rpartition("/")
    return _gathered(base, [asset]) / file


def folder(name: str) -> Path | None:
    """Return a folder with all assets of a folder, after their hashes were checked; None where the
    manifest has none there.

    Raises:
        UnsupportedError: One of them is nowhere to be had.
    """
    found = [one for one in manifest().values() if one.path.startswith(f"{name}/")]
    return _gathered(name, found) if found else None


def sha256(file: Path) -> str | None:
    """Return the hash of a file; None where there is none."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _gathered(base: str, assets: Sequence[Asset]) -> Path:
    """Return a folder that holds assets of the folder `base` and has its name: the checkout's, or
    one of the cache, below a hash of what it holds."""
    if all(sha256(CHECKOUT / one.path) == one.sha256 for one in assets):
        return CHECKOUT / base
    digest = hashlib.sha256("".join(one.sha256 for one in assets).encode()).hexdigest()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = caches / "cudal1-ci" / "assets" / digest[:16] / Path(base).name
    for one in assets:
        file = place / one.path.removeprefix(f"{base}/")
        ours = CHECKOUT / one.path
        if sha256(file) != one.sha256:
            _write(file, ours.read_bytes() if sha256(ours) == one.sha256 else _downloaded(one))
    return place


def _downloaded(asset: Asset) -> bytes:
    """Return an asset's bytes from the address that serves them."""
    base = os.environ.get(URL_VARIABLE, "").rstrip("/")
    if not base:
        raise _missing(asset, f"{URL_VARIABLE} is not set")
    if not base.startswith(("https://", "http://")):
        raise _missing(asset, f"{URL_VARIABLE}: expected an address by http, got {base!r}")
    try:
        with urllib.request.urlopen(f"{base}/{asset.sha256}", timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read(asset.num_bytes + 1)
    except (OSError, urllib.error.URLError) as error:
        raise _missing(asset, f"{base}: {error}") from error
    if hashlib.sha256(content).hexdigest() != asset.sha256:
        raise _missing(asset, f"{base} has something else under its hash")
    return content


def _write(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, as several processes may fetch it at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as partial:
        partial.write(content)
    Path(partial.name).replace(file)


def _missing(asset: Asset, why: str) -> UnsupportedError:
    """Return an error that names the asset, its hash and how to get it."""
    return UnsupportedError(
        f"{asset.path}: the asset is not here ({why}); clone the repository with git, or set "
        f"{URL_VARIABLE} to an address that serves {asset.sha256} ({asset.num_bytes:,} bytes)"
    )
