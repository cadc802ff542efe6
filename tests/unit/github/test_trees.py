"""Commits as folders, without a word to the user's repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudal1_ci.errors import DiscoveryError, UnsupportedError
from cudal1_ci.github import trees as trees_module
from cudal1_ci.github.trees import Trees


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    git(root, "init", "-q")
    (root / "pkg" / "a.py").write_text("a = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def commit(root: Path, text: str) -> str:
    (root / "pkg" / "a.py").write_text(text)
    git(root, "commit", "-qam", "more")
    return git(root, "rev-parse", "HEAD")


def test_each_commit_has_its_files_whatever_lies_in_the_working_tree(repository, tmp_path):
    first = git(repository, "rev-parse", "HEAD")
    second = commit(repository, "a = 2\n")
    (repository / "pkg" / "a.py").write_text("a = 3\n")
    before = git(repository, "status", "--porcelain")
    trees = Trees(repository, tmp_path / "state" / "trees")
    assert (trees.of(first) / "pkg" / "a.py").read_text() == "a = 1\n"
    assert (trees.of(second) / "pkg" / "a.py").read_text() == "a = 2\n"
    assert (trees.of(first) / "run.sh").stat().st_mode & 0o100
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "worktree", "list").count("\n") == 0


def test_the_folder_of_trees_is_that_of_who_asks_and_not_of_the_top(repository, monkeypatch):
    monkeypatch.chdir(repository / "pkg")
    trees = Trees(Path(), Path(".cudal1-ci") / "trees")
    found = trees.of(git(repository, "rev-parse", "HEAD"))
    assert found.is_absolute()
    assert (found / "a.py").read_text() == "a = 1\n"
    assert (repository / "pkg" / ".cudal1-ci" / "trees").is_dir()


def test_no_hook_of_the_repository_runs(repository, tmp_path):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    Trees(repository, tmp_path / "state" / "trees").of(git(repository, "rev-parse", "HEAD"))
    assert not (tmp_path / "ran").exists()


def test_a_folder_below_the_top_is_found_in_its_tree(repository, tmp_path):
    trees = Trees(repository / "pkg", tmp_path / "state" / "trees")
    assert (trees.of(git(repository, "rev-parse", "HEAD")) / "a.py").is_file()
    (repository / "late").mkdir()
    other = Trees(repository / "late", tmp_path / "state" / "trees")
    with pytest.raises(DiscoveryError, match="has no folder late"):
        other.of(git(repository, "rev-parse", "HEAD"))


def test_what_is_built_is_built_once_without_the_jobs_secrets(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.setenv("ACTIONS_RUNTIME_URL", "s3cret")
    monkeypatch.setenv("MY_API_KEY", "s3cret")
    setup = ("echo once >> built", "env > environment")
    sha = git(repository, "rev-parse", "HEAD")
    folder = tmp_path / "state" / "trees"
    for _ in range(2):
        tree = Trees(repository, folder, setup=setup).of(sha)
    assert (tree / "built").read_text() == "once\n"
    assert "s3cret" not in (tree / "environment").read_text()
    assert not (Trees(repository, folder).of(sha) / "built").exists()


def test_a_build_that_fails_says_so_and_leaves_no_tree(repository, tmp_path):
    folder = tmp_path / "state" / "trees"
    trees = Trees(repository, folder, setup=("echo nvcc: not found; exit 3",))
    with pytest.raises(UnsupportedError, match=r"(?s)exit code 3.*nvcc: not found"):
        trees.of(git(repository, "rev-parse", "HEAD"))
    assert [one for one in folder.iterdir() if one.is_dir()] == []


def test_only_some_trees_are_kept(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(trees_module, "MOST_TREES", 2)
    folder = tmp_path / "state" / "trees"
    trees = Trees(repository, folder)
    shas = [commit(repository, f"a = {i}\n") for i in range(5, 8)]
    for sha in shas:
        trees.of(sha)
    kept = {one.name for one in folder.iterdir() if one.is_dir()}
    assert len(kept) == 2
    assert shas[-1][:16] in kept


def test_a_commit_that_does_not_exist_is_named(repository, tmp_path):
    with pytest.raises(DiscoveryError, match="read-tree"):
        Trees(repository, tmp_path / "state" / "trees").of("0" * 40)
