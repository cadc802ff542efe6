from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudal1_ci.discover.files import DiscoveryConfig, source_files
from cudal1_ci.errors import ConfigError, DiscoveryError

from .conftest import WriteTree


def listed(root: Path, config: DiscoveryConfig | None = None) -> list[str]:
    return [file.path for file in source_files(root, config or DiscoveryConfig()).files]


def test_sources_are_listed_in_order_and_everything_else_is_not(write_tree: WriteTree) -> None:
    root = write_tree(
        {"b.py": "", "a.cu": "", "a/k.cuh": "", "a/ops.cpp": "", "n.ipynb": "", "README.md": ""}
    )
    assert listed(root) == ["a.cu", "a/k.cuh", "a/ops.cpp", "b.py"]


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_x.py",
        "pkg/tests/dummy.py",
        "test_x.py",
        "pkg/x_test.py",
        "conftest.py",
        "third_party/a.py",
        "pkg/_vendor/a.py",
        "vendor/a.py",
        ".venv/lib/python3.11/site-packages/a.py",
        "node_modules/a.py",
        "build/lib/a.py",
        "x.egg-info/a.py",
        "proto_pb2.py",
    ],
)
def test_tests_vendored_and_generated_files_are_left_out(write_tree: WriteTree, path: str) -> None:
    assert listed(write_tree({path: "", "own.py": ""})) == ["own.py"]


def test_tests_and_vendored_files_are_listed_on_request(write_tree: WriteTree) -> None:
    root = write_tree({"tests/test_a.py": "", "third_party/b.py": "", ".venv/c.py": ""})
    assert listed(root, DiscoveryConfig(tests=True)) == ["tests/test_a.py"]
    assert listed(root, DiscoveryConfig(vendored=True)) == ["third_party/b.py"]


def test_include_and_exclude_are_gitignore_globs(write_tree: WriteTree) -> None:
    root = write_tree({"src/a.py": "", "src/old/b.py": "", "tools/c.py": ""})
    assert listed(root, DiscoveryConfig(include=("src/**",))) == ["src/a.py", "src/old/b.py"]
    assert listed(root, DiscoveryConfig(exclude=("old/",))) == ["src/a.py", "tools/c.py"]


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({".gitignore": "*.py\n!keep.py\n"}, ["keep.py", "pkg/keep.py"]),
        ({".gitignore": "/keep.py\n"}, ["a.py", "pkg/a.py", "pkg/keep.py"]),
        ({".gitignore": "pkg/\n!pkg/keep.py\n"}, ["a.py", "keep.py"]),
        ({"pkg/.gitignore": "*\n!keep.py\n"}, ["a.py", "keep.py", "pkg/keep.py"]),
        (
            {".gitignore": "a.py\n", "pkg/.gitignore": "!a.py"},
            ["keep.py", "pkg/a.py", "pkg/keep.py"],
        ),
        ({".gitignore": "# a.py\n\n"}, ["a.py", "keep.py", "pkg/a.py", "pkg/keep.py"]),
    ],
)
def test_gitignore_files_are_obeyed_without_git(
    write_tree: WriteTree, rules: dict[str, str], kept: list[str]
) -> None:
    files = dict.fromkeys(("a.py", "keep.py", "pkg/a.py", "pkg/keep.py"), "")
    assert listed(write_tree({**files, **rules})) == kept


def test_rules_above_the_root_hold_but_do_not_exclude_the_root_itself(
    write_tree: WriteTree,
) -> None:
    top = write_tree(
        {
            ".git/HEAD": "",
            ".gitignore": "installed/\nold.py\n",
            "src/new.py": "",
            "src/old.py": "",
            "installed/site-packages/pkg/old.py": "",
        }
    )
    assert listed(top / "src") == ["new.py"]
    assert listed(top / "installed/site-packages/pkg") == ["old.py"]


def test_a_root_inside_of_left_out_folders_is_scanned(write_tree: WriteTree) -> None:
    root = write_tree({".venv/lib/site-packages/tests/pkg/a.py": ""})
    assert listed(root / ".venv/lib/site-packages/tests/pkg") == ["a.py"]


def test_links_are_not_followed_and_a_root_that_is_one_is(write_tree: WriteTree) -> None:
    root = write_tree({"pkg/a.py": "", "outside/b.py": ""})
    (root / "pkg/loop").symlink_to(root / "pkg")
    (root / "pkg/up").symlink_to(root)
    (root / "pkg/all").symlink_to("/")
    (root / "pkg/again.py").symlink_to(root / "pkg/a.py")
    (root / "pkg/gone.py").symlink_to(root / "nowhere.py")
    (root / "linked").symlink_to(root / "pkg")
    assert listed(root / "linked") == ["a.py"]
    assert listed(root) == ["outside/b.py", "pkg/a.py"]


def test_a_pipe_that_is_named_like_a_source_is_not_read(write_tree: WriteTree) -> None:
    root = write_tree({"a.py": ""})
    os.mkfifo(root / "pipe.py")
    assert listed(root) == ["a.py"]


def test_a_huge_file_is_named_in_a_notice(write_tree: WriteTree) -> None:
    root = write_tree({"big.py": "x = 1\n" * 100, "small.py": ""})
    listing = source_files(root, DiscoveryConfig(max_file_bytes=50))
    assert [file.path for file in listing.files] == ["small.py"]
    assert [notice.path for notice in listing.notices] == ["big.py"]
    assert "600 bytes is more than the 50" in listing.notices[0].message
    assert "discover.max-file-bytes" in listing.notices[0].message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_named_in_a_notice(write_tree: WriteTree) -> None:
    root = write_tree({"closed/a.py": "", "b.py": ""})
    (root / "closed").chmod(0)
    try:
        listing = source_files(root, DiscoveryConfig())
    finally:
        (root / "closed").chmod(0o700)
    assert [file.path for file in listing.files] == ["b.py"]
    assert "permissions" in listing.notices[0].message


def test_a_root_that_is_no_folder_is_an_error_that_says_so(write_tree: WriteTree) -> None:
    root = write_tree({"a.py": ""})
    with pytest.raises(DiscoveryError, match="no such folder"):
        source_files(root / "missing", DiscoveryConfig())
    with pytest.raises(DiscoveryError, match="expected a folder with sources, got a file"):
        source_files(root / "a.py", DiscoveryConfig())


@pytest.mark.parametrize("wrong", [{"max_file_bytes": 0}, {"num_processes": 0}])
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be > 0, got 0"):
        DiscoveryConfig(**wrong)  # type: ignore[arg-type]


def test_what_include_names_and_nothing_matches_is_said(write_tree: WriteTree) -> None:
    root = write_tree({"pkg/a.py": "", "tests/b.py": "", "README.md": ""})
    include = ("pkg/*.py", "pgk/*.py", "tests/*.py", "README.md", "!pkg/c.py")
    listing = source_files(root, DiscoveryConfig(include=include))
    assert [file.path for file in listing.files] == ["pkg/a.py"]
    assert [notice.message.split('"')[1] for notice in listing.notices] == [
        "pgk/*.py",
        "tests/*.py",
        "README.md",
    ]
