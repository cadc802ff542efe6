"""Runs that are compared: the same judges, and nothing of one run in another."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from click.testing import CliRunner

from cudal1_ci.errors import ConfigError
from cudal1_ci.records.archive import Archive
from model_training import judges, scoring
from model_training.__main__ import STOPPED, main
from model_training.ablations import Variant, ablations
from model_training.config import load_config
from model_training.toy import ToyJudge
from tests.training.test_pipeline_program import evaluation, lines

BRIEF = (
    'run.stages=["contrastive"]',
    'run.evaluates=["contrastive"]',
    "contrastive.num-steps=2",
    "evaluate.k=2",
)
VARIANTS = {"bucket": "", "none": "contrastive.stream.contrast.sampler=none", "again": ""}


def command(*words, code=0):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def settings(config, *more):
    return ["--config", config, *(word for one in (*BRIEF, *more) for word in ("--set", one))]


def variants(*names):
    return [word for name in names for word in ("--variant", name, VARIANTS[name])]


@pytest.fixture(scope="module")
def opened_judges():
    """How often a judge was started."""
    started = []

    @contextlib.contextmanager
    def toy(config, device):
        started.append(device)
        yield ToyJudge()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(judges.JUDGES, "toy", toy)
        yield started


@pytest.fixture(scope="module")
def compared(tiny_config, opened_judges, tmp_path_factory):
    """The folder of three runs, of which the last is the first again."""
    folder = tmp_path_factory.mktemp("ablations")
    command("ablations", *settings(tiny_config), "--folder", folder, *variants(*VARIANTS))
    assert opened_judges == ["cpu"], "one judge for all of them"
    return folder


def test_each_run_is_what_it_would_be_alone(compared, tiny_config, tmp_path):
    assert lines(compared / "bucket") == lines(compared / "again")
    alone = settings(tiny_config, VARIANTS["none"])
    command("pipeline", *alone, "--folder", tmp_path / "alone")
    assert lines(compared / "none") == lines(tmp_path / "alone")
    assert lines(compared / "none") != lines(compared / "bucket")
    for name in VARIANTS:
        assert evaluation(compared / name, "contrastive").table.num_tasks == 4


def test_a_run_has_no_exemplar_of_another(compared):
    with (
        Archive.open(compared / "bucket" / "archive.sqlite") as first,
        Archive.open(compared / "again" / "archive.sqlite") as last,
    ):
        ends = max(moment for moment, _ in first.recorded())
        assert min(moment for moment, _ in last.recorded()) > ends
        known = [one.all_noted(scoring.REFERENCE, str) for one in (first, last)]
    assert known[0] == known[1] != {}
    text = (compared / "bucket" / "tasks" / "training.jsonl").read_text()
    assert (compared / "again" / "tasks" / "training.jsonl").read_text() == text


def test_what_is_left_goes_on(tiny_config, compared, tmp_path):
    words = [*settings(tiny_config), "--folder", tmp_path]
    command("ablations", *words, *variants("bucket"))
    both = variants("bucket", "none")
    stopped = command("ablations", *words, *both, "--resume", "--max-minutes", "0.00001", code=75)
    assert "stopped (max-minutes)" in stopped.stderr
    assert STOPPED == 75
    done = command("ablations", *words, *both, "--resume")
    assert "bucket: contrastive: finished before" in done.stderr
    for name in ("bucket", "none"):
        assert lines(tmp_path / name) == lines(compared / name)


def test_what_cannot_be_compared_is_refused(tiny_config, tmp_path):
    def load(variant):
        return load_config(tiny_config, changes=variant.changes)

    for wanted, said in (
        ([], "expected one or more"),
        ([Variant(name="a"), Variant(name="a")], "different names"),
        *(([Variant(name=one)], "name of a folder") for one in ("../a", "..", ".", "", "a/b")),
        ([Variant(name="a"), Variant(name="b", changes=("judge.trial.seed=1",))], "judges of a"),
    ):
        with pytest.raises(ConfigError, match=said):
            ablations(wanted, load, tmp_path / "runs", is_resumed=False)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_there_is_not_begun_again(tiny_config, compared, tmp_path):
    shutil.copytree(compared / "bucket", tmp_path / "bucket")
    words = [*settings(tiny_config), "--folder", tmp_path, *variants("bucket")]
    assert "`--resume`" in command("ablations", *words, code=2).stderr
