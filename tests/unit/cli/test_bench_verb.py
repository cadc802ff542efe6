"""What `bench` refuses before anything is judged, and says of a file that it cannot write."""

from __future__ import annotations

import errno

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import bench, main
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from cudal1_ci.report_card.tasks import Choice
from tests.unit.report_card.rig import a_run, a_task, told

TASK = "class Model: ...\ndef get_inputs(): return []\n"


def run(*words):
    return CliRunner().invoke(main, ["bench", *map(str, words)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a task in it; nothing is judged."""

    def judged(*_):
        raise AssertionError("it was judged for hours before anybody was told")

    monkeypatch.setattr(bench, "measured", judged)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(TASK)
    return tmp_path


@pytest.mark.parametrize("flag", ["--output", "--html"])
def test_a_file_that_cannot_be_written_is_refused_first(folder, flag):
    result = run("task.py", flag, "task.py/run.json")
    assert result.exit_code == 4, result.output
    assert "task.py/run.json: cannot be written into task.py" in result.stderr


@pytest.mark.parametrize("flag", ["--output", "--html"])
def test_a_folder_in_the_place_of_a_file_is_refused_first(folder, flag):
    result = run("task.py", flag, folder)
    assert result.exit_code == 2, result.output
    assert "is a directory" in result.stderr


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "²/3", ""])
def test_a_part_that_is_none_is_refused(folder, shard):
    result = run("task.py", "--shard", shard)
    assert result.exit_code == 2, result.output
    assert "such as 2/4" in result.stderr


def test_a_disk_that_is_full_is_told_with_the_file_and_nothing_half_is_left(folder, monkeypatch):
    (folder / "part.json").write_bytes(msgspec.json.encode(a_run(told(a_task(), {"eager": 1.0}))))

    def full(path, text, **_):
        path.write_bytes(text.encode()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")  # a write names no file

    monkeypatch.setattr("pathlib.Path.write_text", full)
    result = run("--merge", "part.json", "--output", "whole.json")
    assert result.exit_code == 4, result.output
    assert "whole.json: cannot be written: No space left on device; fix that" in result.stderr
    assert sorted(one.name for one in folder.iterdir()) == ["part.json", "task.py"]


def test_a_run_under_other_settings_of_the_judge_is_not_gone_on_with(folder):
    def begun(seed, **flags):
        trial = msgspec.structs.replace(Settings().trial, seed=seed)
        settings = msgspec.structs.replace(Settings(), trial=trial)
        given = {"solvers": ("eager",), "policy": "strict", "resume": False} | flags
        return bench.begun(archive, (folder,), Choice(), settings, given)

    with Archive.open(folder / "bench.sqlite") as archive:
        run_id = begun(0)
        assert begun(0, resume=True) == run_id
        with pytest.raises(ConfigError, match=r"by the same policy and settings of the verifier"):
            begun(1, resume=True)
