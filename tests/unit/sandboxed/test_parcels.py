"""What is built on one machine and used on another one."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from cudal1_ci.sandboxed.builds import parcels
from cudal1_ci.sandboxed.builds.parcels import pack, unpack

TIME_NS = 1_795_697_470_123_456_789


@pytest.fixture
def built(tmp_path):
    """A folder of products."""
    folder = tmp_path / "there" / "products"
    (folder / "torch" / "name").mkdir(parents=True)
    for name, content in (("torch/name/main.o", b"object"), ("torch/name/name.so", b"\0" * 9000)):
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(TIME_NS, TIME_NS))
    (folder / "torch/name/run").write_text("#!/bin/sh")
    (folder / "torch/name/run").chmod(0o755)
    return folder


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here" / "products"
    (folder / "torch").mkdir(parents=True)
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_arrive_with_their_times_to_the_nanosecond(built, here):
    """ninja takes what is older than it noted for stale, by however little."""
    assert unpack(pack(built), here)
    assert contents(here) == contents(built)
    assert (here / "torch/name/name.so").stat().st_mtime_ns == TIME_NS
    assert os.access(here / "torch/name/run", os.X_OK)
    assert not os.access(here / "torch/name/main.o", os.X_OK)
    assert [one.name for one in here.parent.iterdir()] == ["products"]


def test_links_and_pipes_stay_behind(built, here, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (built / "link").symlink_to(secret)
    (built / "folder").symlink_to(tmp_path)
    os.mkfifo(built / "pipe")
    assert unpack(pack(built), here)
    assert contents(here) == {
        name: content for name, content in contents(built).items() if name != "link"
    }


def test_nothing_and_too_much_are_no_parcel(built, here, monkeypatch):
    assert pack(here) is None
    assert pack(here / "not there") is None
    monkeypatch.setattr(parcels, "MAX_BYTES", 9000)
    assert pack(built) is None
    monkeypatch.undo()
    monkeypatch.setattr(parcels, "MAX_PACKED_BYTES", 100)
    (built / "noise").write_bytes(os.urandom(5000))
    assert pack(built) is None
    monkeypatch.undo()
    monkeypatch.setattr(parcels, "MAX_FILES", 2)
    assert pack(built) is None


def parcel(*entries):
    """By somebody who does not keep to it."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as made:
        for entry, content in entries:
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def entry(name, **fields):
    found = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(found, key, value)
    return found


@pytest.mark.parametrize(
    "packed",
    [
        parcel((entry("ok"), b"1"), (entry("../outside"), b"2")),
        parcel(
            (entry("ok"), b"1"), (entry("/tmp/outside-of-everything"), b"2"), (entry("ok"), b"")
        ),
        parcel((entry("link", type=tarfile.SYMTYPE, linkname="/etc"), b"")),
        parcel((entry("link", type=tarfile.LNKTYPE, linkname="../../secret"), b"")),
        parcel((entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), b"")),
        parcel((entry("twice"), b"1"), (entry("twice"), b"2")),
        parcel((entry("file"), b"1"), (entry("file/below"), b"2")),
        parcel((entry("ok", pax_headers={"mtime": "never"}), b"1")),
        b"no parcel",
        b"",
    ],
    ids=["up", "absolute", "symlink", "link", "device", "twice", "below", "time", "noise", "empty"],
)
def test_what_pack_does_not_make_is_taken_back_wholly(packed, here, tmp_path):
    (tmp_path / "secret").write_text("of somebody else")
    before = sorted(tmp_path.rglob("*"))
    assert not unpack(packed, here)
    assert contents(here) == {}
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "torch") == [
        path for path in before if path.name != "torch"
    ]


def test_more_than_is_sent_is_not_taken(built, here, monkeypatch):
    packed = pack(built)
    monkeypatch.setattr(parcels, "MAX_BYTES", 9000)
    assert not unpack(packed, here)
    assert contents(here) == {}


def test_what_a_kill_has_left_half_unpacked_is_no_obstacle(built, here):
    arriving = here.with_name("products.arriving")
    arriving.mkdir()
    (arriving / "half").write_text("")
    assert unpack(pack(built), here)
    assert contents(here) == contents(built)
