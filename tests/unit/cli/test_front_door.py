"""What every verb promises: exit codes, messages that name the mend, stdout for the result."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudal1_ci.cli import doctor, main, scan
from cudal1_ci.discover.traces import read_traces
from cudal1_ci.errors import ConfigError, DiscoveryError, UnsupportedError, WorkerError
from cudal1_ci.render.wording import one_line
from tests import engine

MODEL = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return torch.diag(x) @ x
"""


SAMPLE_REPORT = Path(__file__).parents[1] / "render/golden/report.json"


def run(*words, env=None):
    return CliRunner().invoke(main, [str(word) for word in words], env=env)


@pytest.fixture
def checkout(tmp_path):
    """A git checkout with one module of which nobody says how it is called."""
    (tmp_path / "model.py").write_text(MODEL)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("verb", ["scan", "verify", "trace", "report", "publish", "init", "doctor"])
def test_the_help_of_every_verb_shows_examples(verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"cudal1-ci {verb}" in result.stdout


def test_a_verb_that_takes_one_device_offers_no_several_for_a_wrong_one():
    words = ["verify", SAMPLE_REPORT, SAMPLE_REPORT]
    result = run(*words, "--device", "cdua")
    assert result.exit_code == 2
    assert "expected auto, cpu, cuda or cuda:N, got 'cdua'" in " ".join(result.stderr.split())
    several = run(*words, "--device", "cuda:0,cuda:1").stderr
    assert "expected auto" not in several


@pytest.mark.parametrize("verb", ["scan", "sweep", "compare"])
def test_the_help_of_a_verb_offers_several_devices_where_it_takes_them(verb, checkout):
    assert "cuda:all" in run(verb, "--help").stdout
    words = {"compare": ("HEAD", "--path", checkout)}.get(verb, (checkout, "--dry-run"))
    assert "one device" not in run(verb, *words, "--device", "cuda:0,cuda:1").stderr


def test_the_list_of_verbs_says_what_each_does_in_a_whole_sentence():
    listed = run("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    lines = listed.splitlines()
    assert len(lines) == len(main.list_commands(None)), "one line each"
    assert [line for line in lines if line.endswith("...") or line[-1] != "."] == []


@pytest.mark.parametrize(("typed", "meant"), [("scna", "scan"), ("verfy", "verify")])
def test_a_mistyped_verb_gets_a_suggestion(typed, meant):
    result = run(typed)
    assert result.exit_code == 2
    assert f"Did you mean `{meant}`?" in result.stderr


def test_a_verb_that_is_like_no_other_gets_none():
    result = run("zzz")
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("bad key"), 2),
        (DiscoveryError("no tree"), 2),
        (UnsupportedError("no torch"), 4),
        (WorkerError("broke"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_failures_of_the_tool_become_exit_codes(monkeypatch, tmp_path, error, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(scan, "settings_of", fail)
    result = run("scan", tmp_path)
    assert result.exit_code == code
    assert result.stdout == ""
    assert (str(error) or "interrupted") in result.stderr


def test_in_actions_an_error_is_an_annotation(tmp_path):
    result = run("scan", tmp_path / "nowhere", env={"GITHUB_ACTIONS": "true"})
    assert result.stderr.startswith("::error::")


def test_a_path_that_is_nothing_is_named(tmp_path):
    result = run("scan", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert f"{tmp_path / 'nowhere'}: no such file or folder" in result.stderr


def test_an_unknown_key_names_the_file_and_the_nearest_key(checkout):
    (checkout / "pyproject.toml").write_text("[tool.cudal1-ci]\nbudgte = '3m'\n")
    result = run("scan", checkout, "--list")
    assert result.exit_code == 2
    for part in ("pyproject.toml", "budgte", "budget"):
        assert part in result.stderr


def test_two_configuration_files_are_refused(checkout):
    (checkout / "pyproject.toml").write_text("[tool.cudal1-ci]\nbudget = '3m'\n")
    (checkout / ".github").mkdir()
    (checkout / ".github" / "cudal1-ci.toml").write_text("budget = '3m'\n")
    result = run("scan", checkout, "--list")
    assert result.exit_code == 2
    assert "pyproject.toml" in result.stderr
    assert "cudal1-ci.toml" in result.stderr


def test_a_device_that_cannot_be_measured_is_exit_4(checkout):
    result = run("scan", checkout, "--device", "cuda")
    assert result.exit_code == 4
    assert "--device cpu" in result.stderr


def test_changed_outside_of_git_says_so(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    result = run("scan", tmp_path, "--changed", "main", "--list")
    assert result.exit_code == 2
    assert "git" in result.stderr


def test_changed_since_a_commit_that_is_not_there_names_it(checkout):
    result = run("scan", checkout, "--changed", "nowhere/main", "--list")
    assert result.exit_code == 2
    assert "nowhere/main" in result.stderr


def test_a_listing_is_targets_and_workloads_alone(checkout):
    result = run("scan", checkout, "--list", "--json", "-")
    assert result.exit_code == 0
    (entry,) = json.loads(result.stdout)["entries"]
    assert entry["target"] == entry["target"] | {
        "path": "model.py",
        "qualname": "Scale",
        "kind": "torch_module",
        "first_line": 5,
        "last_line": 7,
    }
    assert "evaluations" not in entry
    assert entry["workloads"] == []


def test_a_listing_does_not_hash_what_files_import(checkout, monkeypatch):
    def fail(*_):
        raise AssertionError("that takes minutes in a large tree")

    monkeypatch.setattr("cudal1_ci.discover.import_graph.ImportGraph.digest", fail)
    (checkout / "pyproject.toml").write_text(
        '[[tool.cudal1-ci.workload]]\ntarget = "model.py:Scale"\ninputs = ["float32[2, 2]"]\n'
    )
    result = run("scan", checkout, "--list", "--json", "-")
    assert [w["name"] for w in json.loads(result.stdout)["entries"][0]["workloads"]] == ["2x2"]


def test_a_listing_is_not_written_as_what_cannot_hold_it(checkout):
    result = run("scan", checkout, "--list", "--sarif", "-")
    assert result.exit_code == 2
    assert "sarif" in result.stderr


def test_a_file_that_does_not_parse_is_a_warning_and_no_failure(checkout):
    (checkout / "broken.py").write_text("import torch\nclass Half(torch.nn.Module:\n")
    (checkout / "latin.py").write_bytes(b"import torch\nname = '\xe9'\n")
    (checkout / "loop").symlink_to(checkout, target_is_directory=True)
    result = run("scan", checkout, "--list", "--json", "-")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [entry["target"]["path"] for entry in document["entries"]] == ["model.py"]
    assert {warning["path"] for warning in document["warnings"]} >= {"broken.py", "latin.py"}


def test_dry_run_judges_nothing_and_says_why_a_target_would_be_left_out(checkout):
    result = run("scan", checkout, "--dry-run")
    assert result.exit_code == 0
    assert "skip  model.py:5 Scale" in result.stdout
    assert not (checkout / ".cudal1-ci").exists()


def test_resume_without_an_unfinished_scan_says_so(checkout):
    result = run("scan", checkout, "--resume", "-q")
    assert result.exit_code == 2
    assert "no unfinished scan" in result.stderr


def test_init_writes_a_configuration_that_loads_and_refuses_a_second(checkout):
    assert run("init", checkout, "--trace", 'pytest -k "a b"').exit_code == 0
    shown = run("doctor", checkout, "--show-config", "--json")
    rows = {row["key"]: row for row in json.loads(shown.stdout)}
    assert rows["trace"]["value"] == 'pytest -k "a b"'
    assert "cudal1-ci.toml" in rows["trace"]["origin"]
    assert rows["seed" if "seed" in rows else "trial.seed"]["origin"] == "default"
    again = run("init", checkout)
    assert again.exit_code == 2
    assert "already configured" in again.stderr


def test_init_names_pytest_only_where_there_are_tests(checkout):
    (checkout / "tests").mkdir()
    (checkout / "tests" / "conftest.py").write_text("")
    without = run("init", checkout, "--dry-run").stdout
    assert "trace" not in tomllib.loads(without)
    assert "runs README, docs and examples" in run("init", checkout).stdout
    (checkout / ".github" / "cudal1-ci.toml").unlink()
    (checkout / "tests" / "test_model.py").write_text("")
    assert tomllib.loads(run("init", checkout, "--dry-run").stdout)["trace"] == "pytest -q"
    assert "runs `pytest -q`" in run("init", checkout).stdout


@pytest.mark.parametrize(
    "text",
    ["[tool.cudal1_ci]\n", "[tool.cudal1ci.trial]\nthreads = 2\n"],
)
def test_a_table_under_another_name_is_not_ignored(checkout, text):
    (checkout / "pyproject.toml").write_text(text)
    for words in (["init", checkout], ["scan", checkout, "--list"], ["doctor", checkout]):
        result = run(*words)
        assert result.exit_code == 2, words
        assert "did you mean [tool.cudal1-ci]?" in result.stderr


def test_init_where_nothing_can_be_written_names_the_file_and_the_mend(checkout):
    (checkout / ".github").write_text("a file in the way")
    for words in ([], ["--workflows", "--action", "a/b@" + "0" * 40]):
        result = run("init", checkout, *words)
        assert result.exit_code == 4
        assert f"{checkout}/.github" in result.stderr
        assert "cannot be written" in result.stderr
        assert "--dry-run" in result.stderr


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (["--python", "/nowhere/python"], 4, "/nowhere/python cannot be started"),
        (["--python", "no-such-python"], 4, "--python"),
        (["--model", "/nowhere/weights"], 2, "--model: '/nowhere/weights' is no folder"),
        (["--model", ".", "--adapter", "/nowhere"], 2, "--adapter: "),
        (["--executor", "container"], 4, "--container-image"),
    ],
)
def test_what_a_run_is_told_to_use_is_looked_at_where_there_is_no_target_too(
    tmp_path, flags, code, told
):
    for words in (["scan"], ["sweep"], ["scan", "--list"]):
        result = run(*words, tmp_path, "-q", *flags)
        assert result.exit_code == code, words
        assert told in result.stderr
        assert result.stdout == ""


def test_what_a_file_names_need_not_be_there_for_a_listing(checkout):
    (checkout / "pyproject.toml").write_text('[tool.cudal1-ci]\npython = ".venv/bin/python"\n')
    assert run("scan", checkout, "--list").exit_code == 0
    result = run("scan", checkout)
    assert result.exit_code == 4
    assert f"{checkout}/.venv/bin/python cannot be started" in result.stderr


def test_a_wrong_value_of_a_flag_is_said_of_the_flag(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    for text in ("3", "0s"):
        result = run("verify", tmp_path / "a.py", tmp_path / "b.py", "--timeout", text)
        assert result.exit_code == 2
        assert "--timeout" in result.stderr
        assert "trial.call" not in result.stderr


def test_a_value_that_a_record_refuses_is_said_of_the_flag_too(checkout):
    result = run("compare", "HEAD", "--path", checkout, "--threshold", "-1")
    assert result.exit_code == 2
    assert "(set here: `--threshold` on the command line)" in result.stderr


@pytest.mark.starts_verifier
@pytest.mark.parametrize(
    ("version", "grade", "advice"),
    [("3.9.18", "missing", "Python 3.10 or newer"), ("3.10.13", "ok", ""), ("3.14.0", "ok", "")],
)
def test_doctor_says_what_is_missing_and_how_to_get_it(checkout, tmp_path, version, grade, advice):
    found = {"python": version, "executable": "p", "torch": None, "triton": None}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(found)}'\n")
    python.chmod(0o755)
    result = run("doctor", checkout, "--python", python, "--json")
    assert result.exit_code == 4
    rows = {d["name"]: d for d in json.loads(result.stdout)}
    assert rows["project's Python"]["grade"] == grade
    assert advice in rows["project's Python"]["fix"]
    assert rows["torch"]["grade"] == "missing"
    assert "--python" in rows["torch"]["fix"]


def contained(checkout, folder, image):
    """What doctor says of a container where a folder is all that PATH has besides git."""
    folder.mkdir(exist_ok=True)
    (folder / "git").symlink_to(shutil.which("git"))
    env = {"PATH": str(folder), "CUDAL1_CI_CONTAINER_IMAGE": image}
    env |= {"CUDAL1_CI_EXECUTOR": "container", "CUDAL1_CI_CONTAINER_PYTHON": sys.executable}
    result = run("doctor", checkout, "--json", env=env)
    rows = {d["name"]: d for d in json.loads(result.stdout)}
    return rows["container"], result.exit_code


def test_doctor_says_how_to_get_a_container_engine(checkout, tmp_path):
    row, code = contained(checkout, tmp_path / "bin", engine.IMAGE)
    assert (row["grade"], code) == ("missing", 4)
    assert "apt-get install podman" in row["fix"]


@pytest.mark.parametrize(
    ("image", "mend"), [("", "name an image"), ("nothing:1", "docker pull nothing:1")]
)
def test_a_container_that_cannot_be_had_is_missing(checkout, tmp_path, image, mend):
    engine.install(tmp_path / "bin")
    row, code = contained(checkout, tmp_path / "bin", image)
    assert (row["grade"], code) == ("missing", 4)
    assert mend in row["fix"]


def test_doctor_tries_the_sandbox_in_the_container_that_is_configured(checkout, tmp_path):
    engine.install(tmp_path / "bin")
    row, code = contained(checkout, tmp_path / "bin", engine.IMAGE)
    assert (row["grade"], row["fix"], code) == ("ok", "", 0)
    assert row["found"].startswith("docker 28.2.2; base:12 sha256:")
    assert str(checkout) in engine.mounts(engine.run_of(tmp_path / "bin"))


def test_what_doctor_prints_is_what_it_means(monkeypatch, capsys):
    mend = "`pip install 'cudal1-ci[torch]'`"
    diagnosis = doctor.Diagnosis(name="torch", grade="missing", found="[x]", fix=mend)
    monkeypatch.setenv("COLUMNS", "200")
    doctor.print_table([diagnosis])
    assert mend in capsys.readouterr().out


def test_a_scan_of_nothing_needs_no_judge(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    result = run("scan", tmp_path, "--python", python, "--json", "-", "-q")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["totals"]["num_targets"] == 0


@pytest.mark.starts_verifier
def test_doctor_in_a_machine_that_can_scan_is_exit_0(checkout):
    result = run("doctor", checkout)
    assert result.exit_code == 0, result.stdout
    assert "torch" in result.stdout


def test_a_report_that_is_none_names_the_file(tmp_path):
    file = tmp_path / "report.json"
    file.write_text('{"schema_version": 1}')
    result = run("report", file)
    assert result.exit_code == 2
    assert str(file) in result.stderr


def test_a_report_is_shown_as_a_comment_in_a_template_of_ones_own(tmp_path):
    own = tmp_path / "comment.md.j2"
    own.write_text('{% extends "comment.md.j2" %}{% block footer %}Ours.{% endblock %}')
    page = tmp_path / "report.html"
    words = ["report", SAMPLE_REPORT, "--format", "comment"]
    assert run(*words).stdout.startswith("### cudal1-ci: 2 faster versions proven\n")
    result = run(*words, "--template", own, "--html", page)
    assert result.stdout.endswith("\nOurs.\n")
    assert page.is_file()


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        (b"{{ nobody }}", ["--format", "comment"], "'nobody' is undefined"),
        (b"\xff", ["--format", "comment"], "expected UTF-8"),
        (b"fine", [], "--format comment"),
    ],
)
def test_a_template_that_cannot_be_used_is_an_error_of_usage(tmp_path, text, words, told):
    own = tmp_path / "comment.md.j2"
    own.write_bytes(text)
    result = run("report", SAMPLE_REPORT, "--template", own, *words)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_trace_that_recorded_nothing_leaves_the_one_before(checkout):
    (checkout / "pkg").mkdir()
    (checkout / "pkg" / "__init__.py").write_text("")
    (checkout / "pkg" / "layers.py").write_text(
        "import torch\n\n\nclass Doubled(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x * 2\n"
    )
    drive = "import torch, pkg.layers; pkg.layers.Doubled()(torch.ones(NUMBER))"
    python = ("-m", "cudal1_ci", "trace", ".", "--", sys.executable, "-c")

    def traced(text):
        command = [sys.executable, *python, text]
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)

    first = traced(drive.replace("NUMBER", "3"))
    assert (first.returncode, first.stdout[:29]) == (0, "recorded 1 distinct call of 1"), first
    nothing = traced("pass")
    assert nothing.returncode == 1
    assert "nothing was recorded: the command must call modules" in nothing.stderr
    failed = traced("raise SystemExit(3)")
    assert failed.returncode == 1
    assert "nothing was recorded, and the command ended with exit code 3:" in failed.stderr
    assert "what it called is used" not in failed.stderr
    assert "of an earlier trace 1 call: kept" in nothing.stderr
    no_tests = traced("raise SystemExit(5)  # as of pytest")
    assert "nothing was recorded: pytest found no test here" in no_tests.stderr
    unimported = traced("raise SystemExit(2)  # as of pytest")
    assert "--continue-on-collection-errors" in unimported.stderr
    folder = checkout / ".cudal1-ci" / "traces"
    assert len(read_traces(folder).calls) == 1
    again = traced(drive.replace("NUMBER", "5"))
    assert "of an earlier trace 1 call: replaced" in again.stderr
    ((call,),) = read_traces(folder).calls.values()
    assert call.call.args[0].shape == (5,)
    assert not folder.with_name("traces-new").exists()


@pytest.mark.parametrize("flag", ["--json", "--html", "--md", "--sarif"])
def test_an_output_that_is_a_folder_is_refused_before_anything_is_measured(checkout, flag):
    result = run("scan", checkout, flag, checkout)
    assert result.exit_code == 2
    assert "is a directory" in result.output


@pytest.mark.parametrize("flag", ["--json", "--html", "--md", "--sarif"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    checkout, monkeypatch, flag
):
    (checkout / "taken").write_text("")
    monkeypatch.setattr(scan, "planned", lambda *_: pytest.fail("it was looked at"))
    result = run("scan", checkout, flag, checkout / "taken" / "report")
    assert result.exit_code == 4
    assert f"{checkout}/taken" in result.stderr
    (checkout / "a.py").write_text("")
    verify = ["verify", checkout / "a.py", checkout / "a.py", "--json", checkout / "taken" / "v"]
    assert run(*verify).exit_code == 4


def test_a_file_that_fails_all_the_same_is_named_without_a_traceback(monkeypatch, tmp_path):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "/full/report.json")

    monkeypatch.setattr(scan, "settings_of", fail)
    result = run("scan", tmp_path)
    assert result.exit_code == 4
    assert "error: /full/report.json: No space left on device" in result.stderr


def test_a_disk_that_is_full_names_the_file_and_loses_no_result(tmp_path):
    result = run("scan", tmp_path, "--json", "/dev/full", "--html", tmp_path / "page.html")
    assert result.exit_code == 4
    assert "error: /dev/full: cannot be written (No space left on device); make" in result.stderr
    assert "Nothing to look at" in result.stdout
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")


def test_a_trace_command_that_is_not_there_names_its_key(checkout):
    (checkout / "model.py").write_text("import torch\nclass A(torch.nn.Module): ...\n")
    (checkout / "pyproject.toml").write_text('[tool.cudal1-ci]\ntrace = "no-such-command -q"\n')
    result = run("scan", checkout)
    assert result.exit_code == 2
    assert "pyproject.toml: `trace`: `no-such-command` cannot be run" in result.stderr


def test_a_table_in_the_file_of_keys_alone_is_named(checkout):
    (checkout / ".github").mkdir()
    (checkout / ".github" / "cudal1-ci.toml").write_text("[tool.cudal1-ci]\nbudget = '3m'\n")
    result = run("scan", checkout, "--list")
    assert result.exit_code == 2
    assert "unknown key `tool`; this file holds the keys alone: write `budget`" in result.stderr


def test_a_scan_of_an_empty_folder_says_so_in_a_sentence(tmp_path):
    result = run("scan", tmp_path, "-q")
    assert result.exit_code == 0
    assert "Nothing to look at: there is no PyTorch module" in result.stdout
    assert "No faster version" not in result.stdout


@pytest.mark.parametrize("which", ["reference", "candidate"])
def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path, which):
    good, unreadable = tmp_path / "good.py", tmp_path / "unreadable.py"
    good.write_text("class Model: ...\ndef get_inputs(): ...\n")
    unreadable.symlink_to("/proc/self/mem")  # root too gets an error of this one
    files = [unreadable, good] if which == "reference" else [good, unreadable]
    result = run("verify", *files)
    assert result.exit_code == 2
    assert f"{unreadable}: cannot be read" in result.stderr
    good.write_bytes(b"\xff")
    result = run("verify", good, good)
    assert result.exit_code == 2
    assert f"{good}: expected Python in UTF-8" in result.stderr


def test_patches_go_into_a_folder(checkout):
    (checkout / "taken").write_text("")
    result = run("scan", checkout, "--patches", checkout / "taken")
    assert result.exit_code == 2
    assert "is a file" in result.output


def test_trace_without_a_command_and_without_a_harvest_says_where_a_command_goes(checkout):
    result = run("trace", checkout, "--no-harvest")
    assert result.exit_code == 2
    assert "after `--`" in result.stderr


def test_a_harvest_takes_no_command(checkout, monkeypatch):
    monkeypatch.setattr("sys.argv", ["cudal1-ci", "trace", str(checkout), "--harvest", "--", "ls"])
    result = run("trace", checkout, "--harvest", "--", "ls")
    assert result.exit_code == 2
    assert "leave the command out" in result.stderr


def test_trace_without_a_command_runs_the_readme_and_a_scan_lists_its_calls(checkout):
    page = "```python\nimport torch, model\nmodel.Net()(torch.ones(2, 4))\n```\n"
    source = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    (checkout / "model.py").write_text(f"import torch\n{source}")
    (checkout / "README.md").write_text(page + "```python\nmodel.Gone()\n```\n")
    result = run("trace", checkout, "--timeout", "60")
    assert result.exit_code == 0, result.stderr
    assert "50 % of them in training" in result.stdout
    assert "harvest: 1 target called by 1 README block, in " in result.stderr
    assert "harvest: 1 of all scripts and cells did not run to the end:" in result.stderr
    assert "has no attribute 'Gone'" in result.stderr
    listed = json.loads(run("scan", checkout, "--list", "--json", "-").stdout)
    (entry,) = listed["entries"]
    found = {(one["provenance"], one.get("mode", "infer")) for one in entry["workloads"]}
    assert found == {("readme", "train"), ("readme", "infer")}
    assert entry["workloads"][0]["source"] == "README.md:2"


def test_where_no_script_calls_anything_the_next_step_is_named(checkout):
    source = """class Net(torch.nn.Module):
    def __init__(self, base_func):
        self.base_func = base_func
    def forward(self, x):
        return x.exp()
"""
    (checkout / "model.py").write_text(f"import torch, absent\n{source}")
    (checkout / "README.md").write_text(
        "```python\nfrom model import absent\nabsent.f() * absent.f()\n```\n"
    )
    first = run("scan", checkout, "--list").stdout
    assert "`cudal1-ci trace` (README, docs, examples, tests)" in one_line(first)
    result = run("trace", checkout, "--timeout", "60")
    assert result.exit_code == 1
    assert "1 x needs a package\n" in result.stderr
    assert "harvest: not installed: absent. Calls that need them" in result.stderr
    for said in (result.stderr, run("scan", checkout, "--list").stdout):
        assert "run your own code under `cudal1-ci trace -- COMMAND`" in one_line(said)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Net: ...\n", "expected a top-level `Model`"),
        ("class Model: ...\n", "expected a top-level `get_inputs`"),
        ("class Model(:\n", "does not parse"),
    ],
)
def test_a_reference_that_states_no_problem_is_a_usage_error(tmp_path, source, expected):
    reference, candidate = tmp_path / "ref.py", tmp_path / "cand.py"
    reference.write_text(source)
    candidate.write_text("class ModelNew: ...\n")
    result = run("verify", reference, candidate)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert str(reference) in result.stderr
