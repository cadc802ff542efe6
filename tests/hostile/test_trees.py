"""Trees of commits, traces and git under attack: what a repository or an unconfined job did."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudal1_ci.discover.traces import read_traces
from cudal1_ci.errors import DiscoveryError
from cudal1_ci.git import head_sha, is_clean, working_tree_change
from cudal1_ci.github.tree_integrity import write_manifest
from cudal1_ci.github.trees import Trees
from cudal1_ci.processes import tracing
from cudal1_ci.processes.tracing import run_trace
from tests.unit.github.test_trees import commit, git

MODULE = "import time\n\ndef f(x):\n    return x\n"


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    git(root, "init", "-q")
    (root / "pkg" / "a.py").write_text(MODULE)
    (root / "link").symlink_to("pkg/a.py")
    (root / "run.sh").write_text("#!/bin/sh\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def slowed(tree: Path) -> None:
    file = tree / "pkg" / "a.py"
    before = file.stat()
    file.write_text(MODULE.replace("return x", "return y"))  # of the same size and time
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def with_bytecode(tree: Path) -> None:
    (tree / "pkg" / "__pycache__").mkdir()
    (tree / "pkg" / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"another program")


def with_a_link_elsewhere(tree: Path) -> None:
    (tree / "pkg" / "a.py").rename(tree.parent / "elsewhere.py")
    (tree / "pkg" / "a.py").symlink_to(tree.parent / "elsewhere.py")


def with_another_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("run.sh")


REWRITES = {
    "a function of the same size": slowed,
    "a module that shadows another": lambda tree: (tree / "torch.py").write_text("import evil"),
    "bytecode beside its source": with_bytecode,
    "a file by a link to its copy": with_a_link_elsewhere,
    "a link to another file": with_another_link,
    "a file that is gone": lambda tree: (tree / "run.sh").unlink(),
    "a folder that is empty": lambda tree: (tree / "more").mkdir(),
    "a program that may be run": lambda tree: (tree / "run.sh").chmod(0o755),
    "no record of the tree": lambda tree: tree.with_name(f"{tree.name}.manifest").unlink(),
    "a record that fits the changes": lambda tree: (
        slowed(tree),
        trees_record(tree),
    ),
}


def trees_record(tree: Path) -> None:
    write_manifest(tree, tree.with_name(f"{tree.name}.manifest"))


@pytest.mark.parametrize("name", REWRITES)
def test_a_tree_that_was_rewritten_is_not_measured_and_made_again(repository, tmp_path, name):
    sha = git(repository, "rev-parse", "HEAD")
    trees = Trees(repository, tmp_path / "state" / "trees")
    tree = trees.of(sha)
    trees.check(sha)
    REWRITES[name](tree)
    with pytest.raises(DiscoveryError, match="was changed since it was written"):
        trees.check(sha)
    again = Trees(repository, tmp_path / "state" / "trees")
    assert (again.of(sha) / "pkg" / "a.py").read_text() == MODULE
    again.check(sha)


def test_setup_of_the_head_reaches_neither_the_base_nor_the_commits_own_files(repository, tmp_path):
    first = git(repository, "rev-parse", "HEAD")
    second = commit(repository, "a = 2\n")
    folder = tmp_path / "state" / "trees"
    evil = (
        f"echo slow >> {folder}/*/pkg/a.py; echo slow >> pkg/a.py; rm -f run.sh; echo built > built"
    )
    trees = Trees(repository, folder, setup=(evil,))
    base, head = trees.of(first), trees.of(second)
    for sha in (first, second):
        trees.check(sha)
    assert (base / "pkg" / "a.py").read_text() == MODULE
    assert (head / "pkg" / "a.py").read_text() == "a = 2\n"
    assert (head / "run.sh").is_file()
    assert (head / "built").read_text() == "built\n"


# --- git ------------------------------------------------------------------------------------------

CONFIGURED = {
    "fsmonitor": ("core.fsmonitor", "{evil}"),
    "hooks elsewhere": ("core.hooksPath", "{folder}"),
    "external diff": ("diff.external", "{evil}"),
    "pager": ("core.pager", "{evil}"),
    "editor": ("core.editor", "{evil}"),
    "ssh": ("core.sshCommand", "{evil}"),
    "smudge filter": ("filter.evil.smudge", "{evil}"),
    "clean filter": ("filter.evil.clean", "{evil}"),
    "filter process": ("filter.evil.process", "{evil}"),
    "textconv": ("diff.evil.textconv", "{evil}"),
    "merge driver": ("merge.evil.driver", "{evil}"),
    "credential helper": ("credential.helper", "!{evil}"),
    "alias": ("alias.read-tree", "!{evil}"),
    "upload pack": ("remote.origin.uploadpack", "{evil}"),
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_git_runs_nothing_that_a_repository_brings_along(repository, tmp_path, name):
    """An earlier job on a kept machine may have written `.git/config`; anyone `.gitattributes`."""
    (repository / ".gitattributes").write_text("*.py filter=evil diff=evil merge=evil\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "attributes")
    first = git(repository, "rev-parse", "HEAD")
    second = commit(repository, "a = 2\n")
    ran = tmp_path / "ran"
    evil = tmp_path / "hooks" / "post-checkout"
    evil.parent.mkdir()
    evil.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    evil.chmod(0o755)
    key, value = CONFIGURED[name]
    git(repository, "config", key, value.format(evil=evil, folder=evil.parent))
    (repository / "pkg" / "a.py").write_text("a = 3\n")
    trees = Trees(repository, tmp_path / "state" / "trees")
    for sha in (first, second):
        trees.of(sha)
        trees.check(sha)
    assert head_sha(repository) == second
    working_tree_change(repository, first)
    is_clean(repository)
    assert not ran.exists()


@pytest.mark.parametrize(
    "ref", ["--upload-pack=touch ran", "-c core.pager=x", "a b", "$(touch ran)", "`touch ran`"]
)
def test_a_ref_with_odd_characters_is_a_name_that_is_not_there(repository, monkeypatch, ref):
    monkeypatch.chdir(repository)
    with pytest.raises(DiscoveryError):
        working_tree_change(repository, ref)
    assert not (repository / "ran").exists()


# --- traces --------------------------------------------------------------------------------------

SECRET_FILE = "secret"
LEFT = {
    "a link to a secret": "ln -s {secret} $OUT/trace-1.jsonl",
    "a link to a folder": "ln -s / $OUT/trace-1.jsonl",
    "a pipe that none writes to": "mkfifo $OUT/trace-1.jsonl",
    "a file without end": "truncate -s 1T $OUT/trace-1.jsonl",
    "a folder": "mkdir -p $OUT/trace-1.jsonl/trace-2.jsonl",
    "many files": "cd $OUT; touch $(seq -f 'trace-%g.jsonl' 6000)",
    "a device": "mknod $OUT/trace-1.jsonl c 1 5",
    "a name with a line feed": "touch \"$OUT/$(printf 'trace-\\n::set-output name=x::y.jsonl')\"",
    "another name": "touch $OUT/../../x $OUT/report.json",
    "lines of no shape": "printf '[[[[[[[[\\n{{\"target\": 1}}\\n\\377\\n' > $OUT/trace-1.jsonl",
}


@pytest.mark.parametrize("name", LEFT)
def test_traces_are_plain_files_of_limited_size(tmp_path, name):
    secret = tmp_path / SECRET_FILE
    secret.write_text("token")
    root, folder = tmp_path / "project", tmp_path / "state" / "traces"
    root.mkdir()
    # The hook of the tracer names the folder that it writes to.
    find = "OUT=$(sed -n 's/.*_install(_Path(.\\([^,]*\\).), _Path.*/\\1/p' $HOOK/sitecustomize.py)"
    script = f"HOOK=${{PYTHONPATH%%:*}}; {find}; test -d $OUT || exit 9; "
    script += LEFT[name].format(secret=secret)
    started_s = time.monotonic()
    code = run_trace(("/bin/sh", "-c", script), root, folder, {}, 60, sys.executable)
    assert code != 9
    assert time.monotonic() - started_s < 30
    files = list(folder.iterdir())
    assert all(file.is_file() and not file.is_symlink() for file in files)
    assert len(files) <= tracing.MAX_TRACES
    assert sum(file.stat().st_size for file in files) <= tracing.MAX_TRACE_BYTES
    assert not any("token" in file.read_text(errors="replace") for file in files)
    assert not read_traces(folder).calls


def test_a_key_of_the_environment_is_not_read_by_the_tests_that_are_traced(tmp_path):
    """The whole verb, as a job runs it: the key is in the environment of the process itself."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "test_it.py").write_text(
        "import glob, os\n"
        "for file in glob.glob('/proc/*/environ') + glob.glob('/proc/*/task/*/environ'):\n"
        "    try:\n        print(open(file, 'rb').read())\n    except OSError: pass\n"
        "print(os.environ, os.listdir('.'))\n"
    )
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")},
        "OPENAI_API_KEY": "sk-4711",
        "GITHUB_ENV": str(tmp_path / "env"),
        "CUDAL1_CI_STATE_DIR": str(tmp_path / "state"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    words = [sys.executable, "-m", "cudal1_ci", "trace", "--", sys.executable, "test_it.py"]
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "test_it.py" in said
    assert "sk-4711" not in said
    assert "GITHUB_ENV" not in said
    assert "CUDAL1_CI_STATE_DIR" not in said
