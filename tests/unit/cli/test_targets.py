"""What a verb looks at: folders, files, `file.py:Name`, and declared workloads of none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cudal1_ci.cli import execution, main
from cudal1_ci.cli import scan as scan_module
from cudal1_ci.cli.scan_options import refuse_uncallable
from cudal1_ci.cli.scope import scope_of
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Call, Entry, Report, Target, Workload

MODEL = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x):
        return torch.diag(x) @ x


class Shift(nn.Module):
    def forward(self, x):
        return torch.diag(x) + x
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/model.py").write_text(MODEL)
    (tmp_path / "src/other.py").write_text(MODEL.replace("Scale", "Other").replace("Shift", "Also"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def listed(*words):
    result = run("scan", "--list", "--json", "-", *words)
    assert result.exit_code == 0, result.stderr
    return [entry["target"]["qualname"] for entry in json.loads(result.stdout)["entries"]]


def declared(tree, target, inputs='["float32[8]"]'):
    table = f"[[tool.cudal1-ci.workload]]\ntarget = '{target}'\ninputs = {inputs}\n"
    (tree / "pyproject.toml").write_text(table)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ((), ["Scale", "Shift", "Other", "Also"]),
        (("src",), ["Scale", "Shift", "Other", "Also"]),
        (("src/model.py",), ["Scale", "Shift"]),
        (("src/model.py:Shift",), ["Shift"]),
        (("src/model.py:Shift", "src/other.py"), ["Shift", "Other", "Also"]),
    ],
)
def test_a_path_is_a_folder_a_file_or_a_target(tree, paths, names):
    assert listed(*paths) == names


def test_a_file_elsewhere_is_looked_at_in_its_own_folder(tree, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert listed(tree / "src/model.py:Scale") == ["Scale"]


def test_a_working_directory_that_is_no_project_is_not_searched(tree, monkeypatch):
    (tree / "src/pyproject.toml").touch()
    assert scope_of([Path("src/model.py")]).root == Path("src")
    (tree / "pyproject.toml").touch()
    assert scope_of([Path("src/model.py")]).root == Path()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("src/model.py:Scael", "no target `Scael`; did you mean `Scale`?"),
        ("src/model.py:Other", "no target `Other`; there is src/other.py:Other"),
        ("src/model.py:Nothing", "no target `Nothing`; there is Scale, Shift"),
        ("src:Scale", "expected `file.py:Name`, and src is a folder"),
        ("src/absent.py", "src/absent.py: no such file or folder"),
    ],
)
def test_what_is_not_there_is_exit_2_with_the_nearest_name(tree, path, said):
    result = run("scan", "--list", path)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("verb", ["scan", "explain"])
def test_a_name_that_is_not_there_is_refused_before_a_command_runs(tree, verb):
    (tree / "pyproject.toml").write_text('[tool.cudal1-ci]\ntrace = "touch ran"\n')
    result = run(verb, "src/model.py:Scael")
    assert result.exit_code == 2
    assert "did you mean `Scale`?" in result.stderr
    assert not (tree / "ran").exists()


@pytest.mark.parametrize("words", [["scan"], ["scan", "--list"]])
def test_a_file_that_cannot_be_parsed_is_exit_2_with_the_line(tree, words):
    (tree / "src/broken.py").write_text("import torch\nclass A(:\n")
    result = run(*words, "src/broken.py")
    assert result.exit_code == 2
    assert "error: src/broken.py: does not parse as Python" in result.stderr
    assert "line 2" in result.stderr


def test_an_adapter_for_no_model_is_exit_2(tree):
    result = run("scan", "--list", "--adapter", "somewhere")
    assert result.exit_code == 2
    assert "error: --adapter somewhere: there is no model that it is for" in result.stderr


def test_a_declared_workload_of_no_target_is_exit_2_with_the_nearest_name(tree):
    declared(tree, "src/model.py:Scael")
    result = run("scan", "--list")
    assert result.exit_code == 2
    for part in ("pyproject.toml: tool.cudal1-ci.workload[0].target", "`src/model.py:Scale`?"):
        assert part in result.stderr


@pytest.mark.parametrize("words", [("src/other.py",), ("--include", "src/other.py")])
def test_a_declared_workload_of_what_is_not_looked_at_is_none_of_this_scan(tree, words):
    declared(tree, "src/model.py:Scale")
    assert listed(*words) == ["Other", "Also"]


def test_a_listing_runs_nothing(tree, monkeypatch):
    monkeypatch.setattr("cudal1_ci.cli.trace.run_trace", lambda *_: pytest.fail("ran a command"))
    monkeypatch.setattr(scan_module, "placed", lambda *_: pytest.fail("started a verifier"))
    (tree / "pyproject.toml").write_text("[tool.cudal1-ci]\ntrace = 'touch ran'\n")
    assert listed() == ["Scale", "Shift", "Other", "Also"]
    assert not (tree / "ran").exists()
    result = run("scan", "--list", "--retrace")
    assert result.exit_code == 2
    assert "--list runs nothing" in result.stderr


def entry(provenance, skipped):
    target = Target(path="m.py", qualname="Scale", kind="torch_module", first_line=1, last_line=2)
    source = "pyproject.toml:tool.cudal1-ci.workload[0]"
    workload = Workload(name="w", provenance=provenance, source=source, init=Call(), call=Call())
    return Entry(target=target, skipped=skipped, workloads=(workload,))


FAILED = "reference fails: calling the reference failed: RuntimeError: size mismatch\n  more"


def test_a_declared_workload_that_cannot_be_called_is_named_by_its_key():
    report = Report(repository="r", entries=(entry("declared", FAILED),))
    said = r"workload\[0\]: `m.py:Scale` cannot be called with it: RuntimeError: size mismatch$"
    with pytest.raises(ConfigError, match=said):
        refuse_uncallable(report)


@pytest.mark.parametrize(
    ("provenance", "skipped"),
    [("traced", FAILED), ("declared", "reference fails: importing the reference failed")],
)
def test_what_is_no_fault_of_a_declared_workload_is_no_error(provenance, skipped):
    refuse_uncallable(Report(repository="r", entries=(entry(provenance, skipped),)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scan", "--bogus"), "error: no such option '--bogus'"),
        (
            ("scan", "--device"),
            "error: option '--device' requires an argument; see `main scan --help`",
        ),
        (("--bogus",), "error: no such option '--bogus'"),
        (("verify",), "error: missing argument 'REFERENCE'; see `"),
        (("doctor", "nowhere"), "error: directory 'nowhere' does not exist; see `"),
    ],
)
def test_errors_of_usage_have_the_voice_of_all_others(words, said):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(said)
    assert "Usage:" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", ["scan", "sweep", "compare", "verify", "bench"])
def test_long_help_lists_every_option_under_a_heading(verb):
    text = run(verb, "--help").stdout
    for heading in ("How to measure:", "Where to run:", "Output:"):
        assert f"\n{heading}\n" in text
    command = main.get_command(None, verb)
    for param in command.params:
        if param.param_type_name == "option":
            assert param.opts[0] in text
    other = text.partition("\nOther:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in other.splitlines()] == ["-h,"]


@pytest.mark.parametrize("verb", ["compare", "verify", "explain"])
def test_a_cluster_is_not_offered_where_it_is_refused(verb):
    assert "ray" not in run(verb, "--help").stdout


def completed(words, incomplete):
    complete = ShellComplete(main, {}, "cudal1-ci", "_CUDAL1_CI_COMPLETE")
    return [item.value for item in complete.get_completions(words, incomplete)]


def test_devices_and_solvers_are_completed(monkeypatch):
    monkeypatch.setattr(execution, "num_gpus", lambda _: 2)
    assert completed(["scan", "--device"], "c") == ["cpu", "cuda", "cuda:0", "cuda:1"]
    assert completed(["bench", "--solvers"], "eager,ea") == []
    assert completed(["bench", "--solvers"], "eager,bes") == ["eager,best"]
