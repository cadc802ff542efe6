"""Where builds are kept: for whom, how long, and what a hostile program can make of its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.builds import build_keys, folders
from cudal1_ci.sandboxed.builds.build_keys import architecture_of, software_key
from cudal1_ci.sandboxed.builds.folders import Builds, evict, remove, size_of
from cudal1_ci.sandboxed.wire.programs import Program
from tests.unit.sandboxed.messages import text, tree

MIB = 2**20
Opened = Callable[..., Builds]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """A process's view of one store."""
    count = iter(range(100))

    def make(software: str = "torch-1", max_bytes: int = 2**30, num_idle: int = 16) -> Builds:
        found = Builds(tmp_path / f"own-{next(count)}", num_idle)
        assert found.keep_in(tmp_path / "store", software, max_bytes)
        return found

    return make


def built(process: Builds, program: Program, size: int = 8) -> Path:
    """Build, and end the process."""
    with process.use(program) as folder:
        (folder / "kernel.so").write_bytes(b"x" * size)
    process.close()
    return folder


def is_found(process: Builds, program: Program) -> bool:
    with process.use(program) as folder:
        found = (folder / "kernel.so").exists()
    process.close()
    return found


def test_a_later_process_finds_what_the_same_program_built(opened):
    built(opened(), text())
    assert is_found(opened(), text())


@pytest.mark.parametrize(
    ("program", "software"),
    [
        (text("x = 1 "), "torch-1"),
        (text(entry="ModelNew"), "torch-1"),
        (text(), "torch-2"),
    ],
)
def test_another_text_or_entry_or_software_finds_nothing(opened, program, software):
    built(opened(), text())
    assert not is_found(opened(software), program)


def test_no_program_names_the_folder_of_another_one(opened):
    """The key is a digest, so nothing in a text can lead out of the store."""
    folder = built(opened(), text("../../x", entry="../" * 9))
    assert folder.parent.parent.name == "torch-1"
    assert len(folder.parent.name) == 32
    assert set(folder.parent.name) <= set("0123456789abcdef")


@pytest.mark.parametrize("name", ["m.py", "data/weights.bin", "pkg/.hidden/code.pkl"])
def test_any_changed_file_of_a_checkout_leads_to_another_folder(opened, tmp_path, name):
    root = tmp_path / "checkout"
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_text("before")
    built(opened(), tree(root))
    assert is_found(opened(), tree(root))
    before = path.stat()
    path.write_text("after.")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_found(opened(), tree(root))


def test_what_a_runner_cannot_read_of_a_checkout_does_not_count(opened, tmp_path):
    root = tmp_path / "checkout"
    (root / ".git").mkdir(parents=True)
    built(opened(), tree(root))
    (root / ".git" / "HEAD").write_text("changed")
    assert is_found(opened(), tree(root))


def test_a_candidate_in_a_checkout_does_not_share_the_reference_s_folder(opened, tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    built(opened(), tree(root))
    assert not is_found(opened(), tree(root, **{"m.py": "x"}))


def test_what_a_large_checkout_builds_is_kept_for_the_process_alone(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(build_keys, "MAX_CHECKOUT_BYTES", 10)
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "data").write_text("more than ten")
    process = opened()
    for _ in range(2):
        with process.use(tree(root)) as folder:
            had = (folder / "kernel.so").exists()
            (folder / "kernel.so").write_text("x")
    assert had
    process.close()
    assert not is_found(opened(), tree(root))


def test_a_folder_in_use_is_not_shared_with_another_process(opened):
    built(opened(), text())
    first, second = opened(), opened()
    with first.use(text()) as mine, second.use(text()) as other:
        assert mine != other
        assert (mine / "kernel.so").exists()
        assert not (other / "kernel.so").exists()
    first.close()
    assert is_found(opened(), text())


def test_runners_of_one_process_share_a_folder_and_keep_it_between_launches(opened):
    first, second = opened(), opened()
    with first.use(text()) as one, first.use(text()) as other:
        assert one == other
    with second.use(text()) as elsewhere:  # still held by the first
        assert elsewhere != one
    first.close()


def test_a_builder_gives_a_folder_back_at_once(opened):
    builder, judge = opened(num_idle=0), opened()
    with builder.use(text()) as folder:
        (folder / "kernel.so").write_text("x")
    with judge.use(text()) as found:
        assert (found / "kernel.so").exists()


def test_folders_that_were_not_used_lately_are_given_back(opened):
    process = opened(num_idle=2)
    for number in range(5):
        with process.use(text(f"x = {number}")):
            pass
    assert len(process.held) == 2


def test_a_program_that_builds_nothing_leaves_nothing(opened, tmp_path):
    process = opened()
    with process.use(text()) as folder:
        (folder / "cache" / "triton").mkdir(parents=True)
    process.close()
    assert list((tmp_path / "store").glob("*/*")) == []


def test_a_program_that_builds_too_much_is_not_kept(opened, monkeypatch):
    monkeypatch.setattr(folders, "MAX_ENTRY_BYTES", 100)
    built(opened(), text(), size=101)
    assert not is_found(opened(), text())


def test_what_was_not_used_for_longest_goes_first(opened):
    for number in range(4):
        folder = built(opened(), text(f"x = {number}"), size=MIB)
        os.utime(folder.parent / "lock", (1000 + number, 1000 + number))
    assert is_found(opened(), text("x = 0"))  # used now
    built(opened(max_bytes=3 * MIB + MIB // 2), text("x = 4"), size=MIB)
    found = [is_found(opened(), text(f"x = {number}")) for number in range(5)]
    assert found == [True, False, False, True, True]


def test_what_is_in_use_is_not_removed(opened, tmp_path):
    user = opened()
    with user.use(text()) as folder:
        (folder / "kernel.so").write_bytes(b"x" * MIB)
        evict(tmp_path / "store", 0)
        assert (folder / "kernel.so").exists()
    user.close()
    evict(tmp_path / "store", 0)
    assert not is_found(opened(), text())


def test_the_build_of_a_process_that_was_killed_is_counted(opened, tmp_path):
    process = opened()
    with process.use(text()) as folder:
        (folder / "kernel.so").write_bytes(b"x" * MIB)
    os.close(next(iter(process.held.values())).lock or -1)  # as the kernel does it
    evict(tmp_path / "store", MIB - 1)
    assert not folder.exists()


def test_a_store_that_others_can_write_is_not_used(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o777)
    assert not Builds(tmp_path / "own").keep_in(store, "torch-1", 2**30)


def test_a_store_that_is_a_link_or_a_file_is_not_used(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "file").write_text("")
    for name in ("link", "file", "file/below"):
        assert not Builds(tmp_path / "own").keep_in(tmp_path / name, "torch-1", 2**30)


def test_without_a_store_builds_last_as_long_as_the_process(tmp_path):
    process = Builds(tmp_path / "own")
    with process.use(text()) as folder:
        (folder / "kernel.so").write_text("x")
    with process.use(text()) as again:
        assert (again / "kernel.so").exists()


# --- what a hostile program leaves -------------------------------------------------------------


def test_a_stale_lock_of_a_build_is_removed_when_no_runner_is_alive(opened):
    process = opened()
    with process.use(text()) as folder:
        baton = folder / "cache" / "torch_extensions" / "kernel" / "lock"
        baton.parent.mkdir(parents=True)
        baton.write_text("")
        with process.use(text()):
            assert baton.exists(), "its owner may be building"
    with process.use(text()):
        assert not baton.exists()
    process.close()


@pytest.mark.parametrize("linked", ["cache", "cache/torch_extensions", "cache/torch_extensions/k"])
def test_no_link_leads_the_judge_to_another_folder_s_lock(opened, tmp_path, linked):
    victim = tmp_path / "victim"
    target = victim.joinpath(*Path("cache/torch_extensions/k").parts[len(Path(linked).parts) :])
    target.mkdir(parents=True)
    (target / "lock").write_text("precious")
    process = opened()
    with process.use(text()) as folder:
        (folder / linked).parent.mkdir(parents=True, exist_ok=True)
        (folder / linked).symlink_to(victim)
        assert (folder / "cache" / "torch_extensions" / "k" / "lock").exists()
    with process.use(text()):
        pass
    process.close()
    assert (target / "lock").read_text() == "precious"


def test_removal_follows_no_link_and_is_stopped_by_no_mode(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "entry" / "products" / "shut" / "deeper").mkdir(parents=True)
    (tmp_path / "entry" / "products" / "link").symlink_to(outside)
    (tmp_path / "entry" / "products" / "shut").chmod(0)
    remove(tmp_path / "entry")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert outside.stat().st_mode & 0o777 == 0o500


def deep(folder: Path, levels: int) -> None:
    """Nested folders with a longer path than the kernel takes."""
    top = Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        for _ in range(levels):
            os.mkdir("d" * 8)  # noqa: PTH102
            os.chdir("d" * 8)
        Path("hidden").write_bytes(b"x" * MIB)
    finally:
        os.chdir(top)


def test_a_folder_deeper_than_a_path_is_long_is_too_much_and_is_removed(tmp_path):
    deep(tmp_path / "entry", 1200)
    assert size_of(tmp_path / "entry") is None
    remove(tmp_path / "entry")
    assert list(tmp_path.iterdir()) == []


# --- the software ------------------------------------------------------------------------------


def test_the_software_is_the_same_until_something_changes(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    before = software_key("9.0")
    assert software_key("9.0") == before
    assert software_key("10.0") != before
    monkeypatch.setenv("CXX", "false")
    assert software_key("9.0") != before


def test_another_version_of_a_compiler_is_other_software(tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    keys = []
    for version in (1, 2):
        compiler.write_text(f"#!/bin/sh\necho version {version}\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        keys.append(software_key(None))
    assert keys[0] != keys[1]


class Gpu:
    """What torch says of a GPU, and what it was built for."""

    def __init__(self, capability: tuple[int, int], *known: str):
        self.capability, self.known = capability, list(known)

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return self.capability

    def get_arch_list(self) -> list[str]:
        return self.known


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu((9, 0), "sm_80", "sm_90", "compute_90"), "9.0"),
        (Gpu((12, 0), "sm_90", "sm_120a"), "12.0"),
        (Gpu((8, 6), "sm_80", "sm_90"), "8.6"),
        (Gpu((12, 0), "sm_80", "sm_90"), "9.0+PTX"),
    ],
)
def test_the_architecture_is_the_device_s_as_far_as_torch_knows_it(monkeypatch, gpu, expected):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(build_keys.torch, "cuda", gpu)
    assert architecture_of("cuda") == expected
    assert architecture_of("cpu") is None
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0")
    assert architecture_of("cuda") == "8.0;9.0"
