"""The archive: what is found again, what never is, and what a bad file answers."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ArchiveError
from cudal1_ci.records import Device
from cudal1_ci.records import archive as archive_module
from cudal1_ci.records.archive import NEVER_REUSED, Archive
from tests.fakes import CPU, a_candidate, a_problem, an_evaluation

PROBLEM = a_problem()
CANDIDATE = a_candidate(PROBLEM)
KEY = (PROBLEM.id, CANDIDATE.id, CPU.key, "policy")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "archive.sqlite"


def changed(path: Path, *statements: str) -> None:
    """Run SQL on an archive behind its back."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_an_evaluation_is_found_again_as_it_was_by_another_opening(path):
    evaluation = an_evaluation(CANDIDATE, speedup=3.0)
    with Archive.open(path) as archive:
        assert archive.lookup(*KEY) is None
        archive.record(evaluation, "policy")
    with Archive.open(path) as archive:
        assert archive.lookup(*KEY) == evaluation


@pytest.mark.parametrize("part", range(4), ids=["problem", "candidate", "device", "policy"])
def test_a_difference_in_any_part_of_the_key_is_a_miss(path, part):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
        key = list(KEY)
        key[part] = "other"
        assert archive.lookup(*key) is None


def test_other_software_on_the_same_machine_is_another_device(path):
    upgraded = msgspec.structs.replace(CPU, software={"torch": "1"})
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
        assert archive.lookup(*KEY[:2], upgraded.key, "policy") is None


def test_the_mood_of_the_machine_is_not_in_the_key(path):
    hot = msgspec.structs.replace(CPU, temperature_c=80.0, clock_mhz=900.0)
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
        assert archive.lookup(*KEY[:2], hot.key, "policy") is not None


@pytest.mark.parametrize("status", sorted(NEVER_REUSED))
def test_a_verdict_that_may_not_hold_again_is_kept_but_never_reused(path, status):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE, status), "policy")
        assert archive.lookup(*KEY) is None
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT status FROM evaluations").fetchall() == [(status,)]
    connection.close()


@pytest.mark.parametrize("status", ["incorrect_values", "timeout", "reward_hack", "degenerate"])
def test_a_no_is_reused_like_a_yes(path, status):
    evaluation = an_evaluation(CANDIDATE, status)
    with Archive.open(path) as archive:
        archive.record(evaluation, "policy")
        assert archive.lookup(*KEY) == evaluation


def test_the_newest_evaluation_counts_even_when_it_says_that_nothing_is_certain(path):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE, speedup=2.0), "policy")
        newer = an_evaluation(CANDIDATE, speedup=5.0)
        archive.record(newer, "policy")
        assert archive.lookup(*KEY) == newer
        archive.record(an_evaluation(CANDIDATE, "inconclusive"), "policy")
        assert archive.lookup(*KEY) is None


def test_an_evaluation_without_a_device_is_kept_and_found_under_none(path):
    lost = msgspec.structs.replace(an_evaluation(CANDIDATE, "timeout"), device=None)
    with Archive.open(path) as archive:
        archive.record(lost, "policy")
        assert archive.lookup(*KEY) is None


def test_passed_lists_what_was_measured_on_any_device_oldest_first(path):
    gpu = Device(kind="cuda", name="fake")
    slow = an_evaluation(CANDIDATE, speedup=1.5)
    fast = an_evaluation(a_candidate(PROBLEM, "class ModelNew: pass"), speedup=4.0)
    fast_on_gpu = msgspec.structs.replace(fast, device=gpu)
    checked_only = msgspec.structs.replace(slow, measurements=())
    other = a_problem("class Model: pass")
    with Archive.open(path) as archive:
        for evaluation in (slow, checked_only, fast_on_gpu):
            archive.record(evaluation, "policy")
        archive.record(an_evaluation(CANDIDATE, "incorrect_values"), "policy")
        archive.record(an_evaluation(a_candidate(other)), "policy")
        assert archive.passed(PROBLEM.id) == [slow, fast_on_gpu]


@pytest.mark.parametrize(
    "blob", [b"", b"\xff\xfe", b"{}", b'{"candidate": 1}', b'{"verdict": {"status": "newer"}}']
)
def test_a_record_of_another_version_is_a_miss(path, blob):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
    changed(path, f"UPDATE evaluations SET evaluation = x'{blob.hex()}'")
    with Archive.open(path) as archive:
        assert archive.lookup(*KEY) is None
        assert archive.passed(PROBLEM.id) == []


def test_infinite_errors_of_a_wrong_candidate_can_be_kept(path):
    wrong = an_evaluation(CANDIDATE, "incorrect_values")
    verdict = msgspec.structs.replace(
        wrong.verdict, max_abs_error=float("inf"), max_rel_error=float("nan")
    )
    with Archive.open(path) as archive:
        archive.record(msgspec.structs.replace(wrong, verdict=verdict), "policy")
        found = archive.lookup(*KEY)
    assert found is not None
    assert found.verdict.max_abs_error is None, "JSON has no infinity: absent, never a wrong number"


def test_a_run_is_resumable_until_it_is_finished(path):
    arguments = {"path": "/repo", "changed": None}
    with Archive.open(path) as archive:
        assert archive.unfinished_run(arguments) is None
        run_id = archive.start_run(arguments)
    with Archive.open(path) as archive:
        run = archive.unfinished_run({"changed": None, "path": "/repo"})
        assert run is not None
        assert (run.id, run.arguments, run.finished_at) == (run_id, arguments, None)
        assert archive.unfinished_run({"path": "/repo", "changed": "main"}) is None
        archive.finish_run(run_id)
        assert archive.unfinished_run(arguments) is None


def test_only_the_last_run_with_the_same_arguments_can_be_resumed(path):
    with Archive.open(path) as archive:
        archive.start_run({"path": "a"})
        archive.finish_run(archive.start_run({"path": "a"}))
        assert archive.unfinished_run({"path": "a"}) is None


def test_the_folder_is_made_so_that_git_does_not_offer_to_commit_it(path):
    Archive.open(path).close()
    assert (path.parent / ".gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_is_left_as_it_is(tmp_path):
    Archive.open(tmp_path / "archive.sqlite").close()
    assert not (tmp_path / ".gitignore").exists()


@pytest.mark.parametrize(
    "content", [b"this is not a database, but it is long enough", b"SQLite format 3\0" + b"x" * 500]
)
def test_a_damaged_file_is_named_with_the_mend(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"archive\.sqlite: .*damaged.*mv .*archive\.sqlite"):
        Archive.open(path)
    assert path.read_bytes() == content, "a file that cannot be read is not touched"


def test_damage_that_is_found_while_reading_is_named_with_the_mend(path):
    with Archive.open(path) as archive:
        for _ in range(50):
            archive.record(an_evaluation(CANDIDATE), "policy")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(ArchiveError, match=r"damaged: move it away"), Archive.open(path) as archive:
        archive.passed(PROBLEM.id)


def test_the_database_of_another_program_is_left_alone(path):
    path.parent.mkdir()
    changed(path, "CREATE TABLE theirs (x)")
    with pytest.raises(ArchiveError, match=r"found another program's SQLite database"):
        Archive.open(path)


def test_the_archive_of_a_newer_version_is_refused_with_both_versions(path):
    Archive.open(path).close()
    changed(path, "PRAGMA user_version = 7")
    with pytest.raises(ArchiveError, match=r"schema version 2, got version 7.*pip install -U"):
        Archive.open(path)


def test_the_archive_of_the_version_before_is_taken_over(path):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
    changed(path, "DROP TABLE notes", "PRAGMA user_version = 1")
    with Archive.open(path) as archive:
        archive.note("profile", "key", [1])
        assert archive.lookup(*KEY) == an_evaluation(CANDIDATE)
    with Archive.open(path) as archive:
        assert archive.noted("profile", "key", list[int]) == [1]


def test_a_note_is_found_by_its_kind_and_key_and_the_newest_counts(path):
    with Archive.open(path) as archive:
        archive.note("answer", "a", CPU)
        archive.note("answer", "a", msgspec.structs.replace(CPU, name="newer"))
        archive.note("answer", "b", {"another": "form"})
        assert archive.noted("answer", "a", Device).name == "newer"
        assert archive.noted("profile", "a", Device) is None
        assert archive.noted("answer", "b", Device) is None
        assert list(archive.all_noted("answer", Device)) == ["a"]


def test_what_is_newer_than_a_run_is_left_out_where_that_is_asked_for(path):
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
        archive.note("answer", "a", 1)
        started_at = archive.run_started_at(archive.start_run({}))
        later = a_candidate(PROBLEM, "class Later: ...")
        archive.record(an_evaluation(later), "policy")
        archive.note("answer", "b", 2)
        assert [e.candidate.id for e in archive.passed(PROBLEM.id, started_at)] == [CANDIDATE.id]
        assert archive.all_noted("answer", int, started_at) == {"a": 1}
        assert len(archive.passed(PROBLEM.id)) == 2
        with pytest.raises(KeyError):
            archive.run_started_at("none")


def test_a_folder_that_cannot_be_made_is_named_with_the_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match=r"file/state: .*state-dir"):
        Archive.open(tmp_path / "file" / "state" / "archive.sqlite")


def test_a_folder_in_place_of_the_file_is_named(path):
    path.mkdir(parents=True)
    with pytest.raises(ArchiveError, match=r"archive\.sqlite: unable to open database file"):
        Archive.open(path)


AS_NOBODY = """
import os, sys
from pathlib import Path
from cudal1_ci.records.archive import Archive
from cudal1_ci.errors import ArchiveError
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Archive.open(Path(sys.argv[1]))
except ArchiveError as error:
    print(error)
"""


@pytest.mark.parametrize("existing", [False, True], ids=["new file", "existing file"])
def test_a_folder_without_write_permission_is_named_with_the_mend(existing):
    # Not tmp_path: its parents are closed to the user that this test becomes when run as root.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.sqlite"
        if existing:
            Archive.open(path).close()
            path.chmod(0o444)
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        Path(folder).chmod(0o755)
    assert str(path) in done.stdout
    assert "state-dir" in done.stdout


def test_a_writer_that_never_ends_is_said_to_hold_the_file(path, monkeypatch):
    Archive.open(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(archive_module, "BUSY_TIMEOUT_S", 0.1)
    with pytest.raises(ArchiveError, match=r"another process has held it"):
        Archive.open(path)
    holder.close()


def test_opening_a_new_file_waits_for_another_process_that_is_making_its_tables(path):
    path.parent.mkdir()
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, holder.execute, ["ROLLBACK"])
    release.start()
    Archive.open(path).close()
    release.join()
    holder.close()


def test_a_closed_archive_says_so_in_the_tools_own_words(path):
    archive = Archive.open(path)
    archive.close()
    with pytest.raises(ArchiveError, match="closed"):
        archive.lookup(*KEY)


def test_the_kinds_of_devices_that_a_run_has_used_for_a_problem_are_known(path):
    other = msgspec.structs.replace(CPU, name="other")
    stranger = a_candidate(a_problem("class Model: pass"))
    with Archive.open(path) as archive:
        archive.record(an_evaluation(CANDIDATE), "policy")
        began = time.time()
        for candidate in (CANDIDATE, stranger):
            elsewhere = msgspec.structs.replace(an_evaluation(candidate), device=other)
            archive.record(elsewhere, "another policy")
        nowhere = msgspec.structs.replace(an_evaluation(CANDIDATE, "timeout"), device=None)
        archive.record(nowhere, "policy")
        assert archive.devices(CANDIDATE.problem_id, began) == {other.key}
        assert archive.devices(CANDIDATE.problem_id, 0.0) == {CPU.key, other.key}
        assert archive.devices("another problem", 0.0) == set()
