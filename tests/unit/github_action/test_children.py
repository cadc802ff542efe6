"""What a verb that may run code of a pull request is given, and what it can say to the runner."""

from __future__ import annotations

import sys

import pytest

from cudal1_ci.github.action import children
from cudal1_ci.github.action.children import TIMED_OUT, command, run_verb, scrubbed


def test_a_verb_gets_no_token_no_command_file_and_no_input(tmp_path):
    told = {
        "ACTIONS_RUNTIME_TOKEN": "t",
        "ACTIONS_ID_TOKEN_REQUEST_URL": "u",
        "GITHUB_TOKEN": "t",
        "GH_TOKEN": "t",
        "GITHUB_ENV": "file",
        "GITHUB_PATH": "file",
        "GITHUB_OUTPUT": "file",
        "GITHUB_STATE": "file",
        "GITHUB_STEP_SUMMARY": "file",
        "GITHUB_EVENT_PATH": "file",
        "RUNNER_TEMP": "folder",
        "INPUT_MODEL": "m",
        "HF_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "OPENAI_API_KEY": "k",
    }
    harmless = {
        "PATH": "/usr/bin",
        "CUDA_HOME": "/c",
        "CUDAL1_CI_MODEL_API_KEY_ENV": "MINE",
        "RUNNER_TRACKING_ID": "by which the runner finds what is left",
    }
    kept = scrubbed({**told, **harmless}, tmp_path / "state")
    assert kept == {**harmless, "CUDAL1_CI_STATE_DIR": str(tmp_path / "state")}


def test_a_verb_gets_the_secrets_that_it_needs_itself_by_name(tmp_path):
    kept = scrubbed({"OPENAI_API_KEY": "k", "OTHER_KEY": "k"}, tmp_path, keys=("OPENAI_API_KEY",))
    assert "OPENAI_API_KEY" in kept
    assert "OTHER_KEY" not in kept


def test_an_archive_that_a_pull_request_brings_along_is_not_the_one_that_is_read(tmp_path):
    assert scrubbed({}, tmp_path / "state")["CUDAL1_CI_STATE_DIR"] == str(tmp_path / "state")


def test_nothing_of_the_checkout_is_imported_by_a_verb(tmp_path, capfd):
    for name in ("cudal1_ci", "click", "json", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the checkout')\n")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"}
    assert run_verb(["--version"], cwd=tmp_path, environment=environment, limit_s=60) == 0
    assert "imported" not in capfd.readouterr().out


def test_what_a_verb_prints_means_nothing_to_the_runner(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(children, "command", lambda words: [sys.executable, "-c", words[0]])
    program = "print('::set-output name=verdict::pass', flush=True); print('half', end='')"
    assert run_verb([program], cwd=tmp_path, environment={}, limit_s=60) == 0
    lines = capfd.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("::stop-commands::"))
    word = lines[start].removeprefix("::stop-commands::")
    end = lines.index(f"::{word}::")
    assert start < lines.index("::set-output name=verdict::pass") < end
    assert len(word) > 32
    assert lines[end + 1] == "::endgroup::"


def test_two_runs_are_ended_by_two_words(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(children, "command", lambda words: [sys.executable, "-c", ""])
    for _ in range(2):
        run_verb([], cwd=tmp_path, environment={}, limit_s=60)
    words = [line for line in capfd.readouterr().out.splitlines() if "stop-commands" in line]
    assert len(set(words)) == 2


@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(60)", "import signal, time; signal.signal(2, lambda *_: 0)\n"
     "while True: time.sleep(1)"],
    ids=["interrupted", "killed"],
)  # fmt: skip
def test_a_verb_that_does_not_end_is_ended(tmp_path, monkeypatch, program):
    monkeypatch.setattr(children, "command", lambda words: [sys.executable, "-c", words[0]])
    monkeypatch.setattr(children, "KILL_AFTER_S", 0.5)
    assert run_verb([program], cwd=tmp_path, environment={}, limit_s=0.5) == TIMED_OUT


def test_a_verb_does_not_outlive_the_step(tmp_path, monkeypatch):
    started = []

    class Interrupted(children.subprocess.Popen):
        def wait(self, timeout=None):
            if not started:
                started.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(children.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(children, "command", lambda words: ["sleep", "60"])
    with pytest.raises(KeyboardInterrupt):
        run_verb([], cwd=tmp_path, environment={}, limit_s=60)
    assert started[0].returncode == -9


def test_a_verb_is_started_from_this_checkout_in_an_isolated_interpreter():
    assert command(["scan"])[:3] == [sys.executable, "-I", "-c"]
    assert command(["scan"])[-1] == "scan"
