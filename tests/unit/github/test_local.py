from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import (
    head_sha,
    repository_name,
    run_git,
    web_address,
    working_tree_change,
)
from cudal1_ci.records import Change, FileChange


def git(folder: Path, *arguments: str) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    result = subprocess.run(
        ["git", *names, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return result.stdout.strip()


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_py", ".py").replace("_cu", ".cu")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init")
    write(root, a_py="a = 1\n", pkg__b_py="b = 1\n" * 20, gone_py="gone = 1\n", k_cu="int k;\n")
    (root / "notes.md").write_text("notes")
    (root / ".gitignore").write_text("ignored.py\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "base")
    git(root, "branch", "feature")
    return root


def by_path(change: Change) -> dict[str, FileChange]:
    return {file.path: file for file in change.files}


def test_committed_staged_unstaged_and_untracked_work_is_all_in_the_change(
    repository: Path,
) -> None:
    base = head_sha(repository)
    git(repository, "checkout", "feature")
    write(repository, a_py="a = 2\n")
    git(repository, "commit", "-am", "committed")
    write(repository, k_cu="int k = 1;\n")
    git(repository, "add", "k.cu")
    write(repository, pkg__new_py="new = 1\n", ignored_py="x")
    (repository / "gone.py").unlink()
    (repository / "notes.md").write_text("other notes")
    change = working_tree_change(repository, "main")
    assert by_path(change) == {
        "a.py": FileChange(path="a.py", before="a = 1\n", after="a = 2\n"),
        "gone.py": FileChange(path="gone.py", before="gone = 1\n", after=None),
        "k.cu": FileChange(path="k.cu", before="int k;\n", after="int k = 1;\n"),
        "pkg/new.py": FileChange(path="pkg/new.py", before=None, after="new = 1\n"),
    }
    assert change.base_sha == base
    assert change.head_sha is None
    assert change.repository == "project"


def test_the_change_starts_at_the_merge_base_not_at_the_tip_of_the_base(repository: Path) -> None:
    base = head_sha(repository)
    write(repository, a_py="a = 'on main'\n")
    git(repository, "commit", "-am", "main goes on")
    git(repository, "checkout", "feature")
    write(repository, k_cu="int k = 2;\n")
    git(repository, "commit", "-am", "feature")
    change = working_tree_change(repository, "main")
    assert set(by_path(change)) == {"k.cu"}
    assert change.base_sha == base
    assert change.head_sha == head_sha(repository)


def test_a_rename_carries_both_paths(repository: Path) -> None:
    git(repository, "checkout", "feature")
    git(repository, "mv", "pkg/b.py", "pkg/c.py")
    write(repository, pkg__c_py="b = 1\n" * 20 + "c = 1\n")
    git(repository, "commit", "-am", "rename")
    assert working_tree_change(repository, "main").files == (
        FileChange(
            path="pkg/c.py",
            previous_path="pkg/b.py",
            before="b = 1\n" * 20,
            after="b = 1\n" * 20 + "c = 1\n",
        ),
    )


def test_paths_are_relative_to_the_folder_that_is_scanned(repository: Path) -> None:
    write(repository, a_py="a = 3\n", pkg__b_py="b = 2\n")
    change = working_tree_change(repository / "pkg", "HEAD")
    assert set(by_path(change)) == {"b.py"}


def test_names_with_spaces_quotes_and_accents_are_read(repository: Path) -> None:
    name = 'é "odd" name.py'
    (repository / name).write_text("x = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "odd")
    (repository / name).write_text("x = 2\n")
    assert by_path(working_tree_change(repository, "HEAD"))[name].after == "x = 2\n"


def test_what_is_no_text_has_no_text(repository: Path) -> None:
    (repository / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert working_tree_change(repository, "HEAD").files == ()


def test_nothing_changed_is_an_empty_change(repository: Path) -> None:
    change = working_tree_change(repository, "main")
    assert change.files == ()
    assert change.head_sha == change.base_sha == head_sha(repository)


def test_a_folder_without_git_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DiscoveryError, match=r"needs a git repository.*name a folder of one"):
        working_tree_change(tmp_path, "main")
    with pytest.raises(DiscoveryError, match="there is none"):
        working_tree_change(tmp_path / "missing", "main")


@pytest.mark.parametrize("base", ["nowhere", "origin/main", "HEAD~99", "", "HEAD:a.py"])
def test_an_unknown_base_is_an_error_that_names_it(repository: Path, base: str) -> None:
    with pytest.raises(DiscoveryError, match="no such branch, tag or commit here"):
        working_tree_change(repository, base)


def test_a_commit_that_no_remote_knows_by_that_name_is_not_to_be_fetched_by_it(repository):
    with pytest.raises(DiscoveryError, match=r"HEAD~99: .*git fetch --unshallow") as raised:
        working_tree_change(repository, "HEAD~99")
    assert "origin" not in str(raised.value)
    with pytest.raises(DiscoveryError, match="git fetch origin main2"):
        working_tree_change(repository, "origin/main2")


def test_an_option_is_not_taken_for_a_base(repository: Path) -> None:
    with pytest.raises(DiscoveryError, match="expected a branch, tag or commit"):
        working_tree_change(repository, "--output=/tmp/x")


def test_a_shallow_clone_without_the_merge_base_says_to_deepen_it(
    repository: Path, tmp_path: Path
) -> None:
    write(repository, a_py="a = 'main'\n")
    git(repository, "commit", "-am", "main goes on")
    git(repository, "checkout", "feature")
    write(repository, a_py="a = 'feature'\n")
    git(repository, "commit", "-am", "feature")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--depth=1", "--no-single-branch", f"file://{repository}", str(clone))
    with pytest.raises(DiscoveryError, match="shallow: git fetch --unshallow"):
        working_tree_change(clone, "origin/main")


def test_histories_without_a_common_commit_are_an_error(repository: Path) -> None:
    git(repository, "checkout", "--orphan", "other")
    git(repository, "commit", "-m", "unrelated")
    with pytest.raises(DiscoveryError, match="no commit in common"):
        working_tree_change(repository, "main")


def test_a_repository_without_commits_is_an_error(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert head_sha(tmp_path) is None
    with pytest.raises(DiscoveryError, match="no such branch"):
        working_tree_change(tmp_path, "main")


def test_git_that_is_not_installed_is_an_error(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DiscoveryError, match="git was not found on PATH"):
        working_tree_change(repository, "main")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/owner/name.git", "owner/name"),
        ("https://example.org/owner/name", "owner/name"),
        ("git@example.org:owner/name.git", "owner/name"),
        ("ssh://git@example.org:22/group/owner/name.git/", "owner/name"),
        ("file:///somewhere/owner/name.git", "project"),
        ("/somewhere/owner/name.git", "project"),
        (None, "project"),
    ],
)
def test_the_repository_is_named_after_its_remote_or_its_folder(
    repository: Path, url: str | None, name: str
) -> None:
    if url is not None:
        git(repository, "remote", "add", "origin", url)
    assert repository_name(repository / "pkg") == name


def test_without_a_remote_the_name_is_that_of_the_project(repository: Path) -> None:
    (repository / "pyproject.toml").write_text('[project]\nname = "slowformer"\n')
    assert repository_name(repository / "pkg") == "slowformer"
    (repository / "pkg" / "pyproject.toml").write_text('[project]\nname = "inner"\n')
    assert repository_name(repository / "pkg") == "inner"
    for text in ("project = 3", "[project]\nname = 3", "[project", ""):
        (repository / "pkg" / "pyproject.toml").write_text(text)
        assert repository_name(repository / "pkg") == "slowformer"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://example.org/owner/name.git", "https://example.org/owner/name"),
        ("https://user:secret@example.org/owner/name", "https://example.org/owner/name"),
        ("git@example.org:owner/name.git", "https://example.org/owner/name"),
        ("ssh://git@example.org/owner/name.git", "https://example.org/owner/name"),
        ("ssh://git@example.org:22/group/owner/name.git/", None),
        ("https://example.org/owner/another", None),
        ("/somewhere/owner/name.git", None),
        (None, None),
    ],
)
def test_the_address_is_that_of_the_remote(
    repository: Path, url: str | None, address: str | None
) -> None:
    if url is not None:
        git(repository, "remote", "add", "origin", url)
    assert web_address(repository, "owner/name") == address


def test_outside_of_git_the_name_is_that_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert repository_name(tmp_path / "plain") == "plain"
    assert head_sha(tmp_path / "plain") is None


def test_git_variables_of_the_caller_redirect_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = head_sha(repository)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    write(repository, a_py="a = 9\n")
    assert head_sha(repository) == expected
    assert set(by_path(working_tree_change(repository, "HEAD"))) == {"a.py"}


def test_a_git_that_hangs_is_ended(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "bin" / "git"
    hanging.parent.mkdir()
    hanging.write_text("#!/bin/sh\nexec sleep 30\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hanging.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("cudal1_ci.git.GIT_TIMEOUT_S", 0.2)
    with pytest.raises(DiscoveryError, match="took more than"):
        run_git(repository, "log")
