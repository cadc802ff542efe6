"""The copy of a checkout in which a candidate runs that changes what is compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.runner import patched_tree
from cudal1_ci.sandboxed.runner.patched_tree import TooLarge, copied, needs_copy
from cudal1_ci.sandboxed.wire.programs import TreeProgram
from tests.unit.sandboxed.messages import tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {
        "pkg/ops.py": "import this\n",
        "pkg/__pycache__/ops.pyc": "old",
        "csrc/a.cu": "old",
        "csrc/a.cuh": "beside it",
        ".env": "SECRET=1",
        ".git/config": "token",
        "pkg/.hidden": "below the top",
        "venv/pyvenv.cfg": "home = /usr",
        "venv/lib/big.py": "x",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "weights.bin").write_bytes(bytes(patched_tree.MAX_COPIED_BYTES + 1))
    (root / "csrc/link.cuh").symlink_to("a.cuh")
    os.utime(root / "csrc/a.cu", (1000, 1000))
    os.utime(root / "csrc/a.cuh", (2000, 2000))
    return root


def program(root: Path, **texts: str) -> TreeProgram:
    return tree(root, "pkg.ops:f", **texts)


CU = {"csrc__a.cu": "new"}


def copy_of(root: Path, tmp_path: Path, **texts: str) -> Path:
    found = copied(program(root, **(texts or CU)), tmp_path / "cache")
    assert not found.overlay
    assert found.import_path == "pkg.ops:f"
    return Path(found.root)


def test_what_is_imported_needs_no_copy(root):
    assert not needs_copy(program(root))
    assert not needs_copy(program(root, **{"pkg__ops.py": "x"}))
    assert needs_copy(program(root, **{"pkg__ops.py": "x"}, **CU))


def test_the_copy_has_the_changed_files_and_all_others_and_the_checkout_is_left_alone(
    root, tmp_path
):
    copy = copy_of(root, tmp_path, **CU, **{"pkg__ops.py": "import that\n", "csrc__b.cu": "more"})
    assert (copy / "csrc/a.cu").read_text() == "new"
    assert (copy / "csrc/b.cu").read_text() == "more"
    assert (copy / "pkg/ops.py").read_text() == "import that\n"
    assert (copy / "csrc/a.cuh").read_text() == "beside it"
    assert (copy / "pkg/.hidden").exists()
    assert (copy / "csrc/link.cuh").resolve() == copy.resolve() / "csrc/a.cuh"
    assert (root / "csrc/a.cu").read_text() == "old"
    assert not (root / "csrc/b.cu").exists()


def test_what_is_hidden_byte_code_and_the_contents_of_an_environment_are_not_copied(root, tmp_path):
    copy = copy_of(root, tmp_path)
    assert not (copy / ".env").exists()
    assert not (copy / ".git").exists()
    assert not (copy / "pkg/__pycache__").exists()
    assert (copy / "venv").is_symlink()
    assert (copy / "weights.bin").is_symlink()


def test_the_second_runner_finds_the_same_files_with_the_same_times(root, tmp_path):
    copy = copy_of(root, tmp_path)
    before = {path: path.lstat() for path in copy.rglob("*")}
    assert (copy / "csrc/a.cu").stat().st_mtime == 1000
    assert (copy / "csrc/a.cuh").stat().st_mtime == 2000
    assert copy_of(root, tmp_path) == copy
    after = {path: path.lstat() for path in copy.rglob("*")}
    assert {p: (s.st_ino, s.st_mtime_ns) for p, s in after.items() if not p.is_dir()} == {
        p: (s.st_ino, s.st_mtime_ns) for p, s in before.items() if not p.is_dir()
    }


def test_what_an_earlier_runner_changed_is_put_right(root, tmp_path):
    copy = copy_of(root, tmp_path)
    (copy / "csrc/a.cu").write_text("tampered")
    (copy / "pkg/ops.py").unlink()
    (copy / "pkg/ops.py").symlink_to(root / "csrc/a.cu")
    copy_of(root, tmp_path)
    assert (copy / "csrc/a.cu").read_text() == "new"
    assert (copy / "pkg/ops.py").read_text() == "import this\n"
    assert not (copy / "pkg/ops.py").is_symlink()
    assert (root / "csrc/a.cu").read_text() == "old"


def test_another_text_is_in_another_copy(root, tmp_path):
    assert copy_of(root, tmp_path) != copy_of(root, tmp_path, **{"csrc__a.cu": "newer"})


def test_a_checkout_of_too_many_files_is_refused(root, tmp_path, monkeypatch):
    monkeypatch.setattr(patched_tree, "MAX_FILES", 3)
    with pytest.raises(TooLarge, match="more than 3 files"):
        copy_of(root, tmp_path)
