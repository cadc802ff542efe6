"""Weights and raw results are found by hash, and no archive holds them."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cudal1_ci import assets
from cudal1_ci.errors import UnsupportedError

ROOT = Path(__file__).parents[2]
MOST_BYTES = 4_000_000
"""Of the archive of a commit, which every run of the Action downloads."""

in_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(),
    reason="archives of a commit hold no assets and no commit",
)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Two assets of one folder, without a checkout: the cache's folder and one to serve them."""
    served = tmp_path / "served"
    served.mkdir()
    entries = []
    for name, content in (("a.txt", b"first"), ("below/b.txt", b"second")):
        digest = hashlib.sha256(content).hexdigest()
        (served / digest).write_bytes(content)
        entries.append({"path": f"some/folder/{name}", "sha256": digest, "bytes": len(content)})
    manifest = tmp_path / "assets.json"
    manifest.write_text(json.dumps(entries))
    monkeypatch.setattr(assets, "MANIFEST", manifest)
    monkeypatch.setattr(assets, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(assets.URL_VARIABLE, raising=False)
    assets.manifest.cache_clear()
    yield served
    assets.manifest.cache_clear()


@pytest.fixture
def address(alone, monkeypatch):
    """A server of the assets by their hashes; it is the address that they are asked of."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(alone))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(assets.URL_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
        yield server
        server.shutdown()


# --- those of this repository --------------------------------------------------------------------


@in_git
@pytest.mark.parametrize("name", assets.manifest())
def test_every_asset_can_be_had_and_is_what_the_manifest_says(name):
    found = assets.path(name)
    assert found == ROOT / "assets" / name
    asset = assets.manifest()[name]
    content = found.read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (asset.sha256, asset.num_bytes)


@in_git
def test_every_file_of_the_folder_is_in_the_manifest():
    lying = {
        path.relative_to(assets.CHECKOUT).as_posix()
        for path in assets.CHECKOUT.rglob("*")
        if path.is_file()
    }
    assert lying == set(assets.manifest()), "run `python experiments/manifest.py`"


@in_git
def test_an_archive_of_this_commit_is_small_and_holds_the_manifest():
    archive = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    assert len(gzip.compress(archive, 6)) < MOST_BYTES
    names = subprocess.run(["tar", "-t"], input=archive, capture_output=True, check=True).stdout
    held = names.decode().splitlines()
    assert "cudal1_ci/assets.json" in held
    assert not [name for name in held if name.startswith("assets/")]


def test_no_weights_lie_in_the_package():
    assert not list((ROOT / "cudal1_ci").rglob("*.safetensors"))


# --- where they are taken from -------------------------------------------------------------------


def test_a_checkout_comes_first_where_its_files_are_the_manifests(alone, tmp_path):
    place = tmp_path / "checkout" / "some" / "folder"
    (place / "below").mkdir(parents=True)
    (place / "a.txt").write_bytes(b"first")
    (place / "below" / "b.txt").write_bytes(b"second")
    assert assets.folder("some/folder") == place
    assert assets.path("some/folder/below/b.txt") == place / "below" / "b.txt"
    (place / "below" / "b.txt").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    assert assets.path("some/folder/a.txt") == place / "a.txt"
    with pytest.raises(UnsupportedError, match=r"below/b\.txt: the asset is not here"):
        assets.folder("some/folder")


def test_what_is_downloaded_is_kept(address, alone, tmp_path):
    found = assets.folder("some/folder")
    assert found.name == "folder", "an adapter is named after its folder"
    assert found.is_relative_to(tmp_path / "cache" / "cudal1-ci" / "assets")
    assert sorted(path.name for path in found.iterdir()) == ["a.txt", "below"]
    shutil.rmtree(alone)
    assert assets.folder("some/folder") == found
    assert (found / "below" / "b.txt").read_bytes() == b"second"


def test_a_damaged_file_of_the_cache_is_fetched_again(address):
    found = assets.path("some/folder/a.txt")
    found.write_bytes(b"fist")
    assert assets.path("some/folder/a.txt").read_bytes() == b"first"


def test_what_has_another_hash_is_refused(address, alone):
    digest = assets.manifest()["some/folder/a.txt"].sha256
    (alone / digest).write_bytes(b"other")
    with pytest.raises(UnsupportedError, match="something else under its hash"):
        assets.path("some/folder/a.txt")
    (alone / digest).unlink()
    with pytest.raises(UnsupportedError, match=r"a\.txt: .*404"):
        assets.path("some/folder/a.txt")


@pytest.mark.parametrize(
    ("url", "said"),
    [("", f"{assets.URL_VARIABLE} is not set"), ("file:///etc", "expected an address by http")],
)
def test_what_cannot_be_had_is_named_with_its_hash_and_the_ways(alone, monkeypatch, url, said):
    monkeypatch.setenv(assets.URL_VARIABLE, url)
    digest = assets.manifest()["some/folder/a.txt"].sha256
    with pytest.raises(UnsupportedError, match=rf"a\.txt: .*{said}.*with git.*{digest} \(5 bytes"):
        assets.path("some/folder/a.txt")


def test_what_the_manifest_does_not_have_is_none_or_an_error(alone):
    assert assets.folder("some/fold") is None
    with pytest.raises(UnsupportedError, match="other: no such asset"):
        assets.path("other")
