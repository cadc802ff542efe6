"""Keep what was tried: an append-only SQLite file of evaluations and their runs.

Knows which evaluations may stand in for a new trial, and that a finished one must survive
whatever happens next. Knows nothing of what an evaluation is worth (`score.py`) nor of what to try.

    with Archive.open(Path(".cudal1-ci/archive.sqlite")) as archive:
        archive.record(evaluation, policy)
        archive.lookup(problem.id, candidate.id, device.key, policy)

An evaluation is found again under the same problem, candidate, device and verifier's settings
(`policy`), and under nothing less. Rows are never changed: a candidate that is verified again gets
a second row, and the newest one counts. Any number of processes and threads may read and write at
once.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from cudal1_ci.errors import ArchiveError
from cudal1_ci.records import Evaluation, Record, Status
from cudal1_ci.records.version_1 import renewed

T = TypeVar("T")

SCHEMA_VERSION = 2
# "c1ci" in ASCII: tells our file from any other SQLite database.
APPLICATION_ID = 0x63316369
# A writer holds the lock for one insert and one fsync; half a minute is a machine in trouble.
BUSY_TIMEOUT_S = 30.0
LEAST_BYTES = 2**16
"""Free on a disk that has room for the files of a database."""

NEVER_REUSED: frozenset[Status] = frozenset({"inconclusive", "harness_error", "invalid_reference"})
"""Verdicts on the machine's load or installed software; the key contains neither."""

# Autoincrement: ids only grow, so that "newest" is the largest id even in a file that was pruned.
TABLES = """
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    recorded_at REAL NOT NULL,
    problem_id TEXT NOT NULL,
    candidate_id TEXT NOT NULL,
    device_key TEXT,
    policy TEXT NOT NULL,
    status TEXT NOT NULL,
    evaluation BLOB NOT NULL
);
CREATE INDEX evaluations_by_key
    ON evaluations (problem_id, candidate_id, device_key, policy, id);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    started_at REAL NOT NULL,
    arguments TEXT NOT NULL,
    finished_at REAL
);
CREATE INDEX runs_by_arguments ON runs (arguments, started_at);
"""
NOTES = """
CREATE TABLE notes (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    recorded_at REAL NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, key)
)
"""
"""Since version 2: what a model answered, where a reference's time goes, which operators it has."""


class Run(Record, frozen=True, kw_only=True):
    """Describe one use of the tool. Times are seconds since the epoch; an unfinished run can be
    resumed.
    """

    id: str
    started_at: float
    arguments: dict[str, Any]
    finished_at: float | None = None


class Archive:
    """An open archive; a context manager. Every method may raise ArchiveError."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the archive at `path`; the file and its folder are made where they are missing.

        Raises:
            ArchiveError: The folder cannot be written, the file is damaged, is not an archive, or
                was written by a newer version.
        """
        make_folder(path.parent)
        with explained(path):
            # isolation_level None: transactions are begun by us, never by a guess of the driver.
            connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            with explained(path):
                prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Nothing is pending: each record was committed when it was made."""
        self._connection.close()

    def record(self, evaluation: Evaluation, policy: str) -> None:
        """Keep an evaluation. When this returns it is on the disk, whatever happens next."""
        candidate = evaluation.candidate
        row = (
            time.time(),
            candidate.problem_id,
            candidate.id,
            evaluation.device.key if evaluation.device else None,
            policy,
            evaluation.verdict.status,
            msgspec.json.encode(evaluation),
        )
        self._write(
            "INSERT INTO evaluations (recorded_at, problem_id, candidate_id, device_key, policy,"
            " status, evaluation) VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        )

    def lookup(
        self, problem_id: str, candidate_id: str, device_key: str, policy: str
    ) -> Evaluation | None:
        """Return the newest evaluation of this candidate on such a device under these settings.

        Return None when there is none, when the newest would not hold again (`NEVER_REUSED`), or
        when this version does not read the form of its record.
        """
        rows = self._rows(
            "SELECT status, evaluation FROM evaluations WHERE problem_id = ? AND candidate_id = ?"
            " AND device_key = ? AND policy = ? ORDER BY id DESC LIMIT 1",
            (problem_id, candidate_id, device_key, policy),
        )
        if not rows or rows[0][0] in NEVER_REUSED:
            return None
        return decoded(rows[0][1])

    def newest(
        self, problem_id: str, candidate_id: str, device_key: str, policy: str, since: float
    ) -> Evaluation | None:
        """Return the newest evaluation recorded since a moment (seconds since the epoch), whatever
        its status. A resumed run gets the answers that it had before.
        """
        rows = self._rows(
            "SELECT evaluation FROM evaluations WHERE problem_id = ? AND candidate_id = ?"
            " AND device_key = ? AND policy = ? AND recorded_at >= ? ORDER BY id DESC LIMIT 1",
            (problem_id, candidate_id, device_key, policy, since),
        )
        return decoded(rows[0][0]) if rows else None

    def devices(self, problem_id: str, since: float) -> set[str]:
        """Return keys of the devices with an evaluation of a problem since a moment, in seconds
        since the epoch.
        """
        rows = self._rows(
            "SELECT DISTINCT device_key FROM evaluations WHERE problem_id = ?"
            " AND recorded_at >= ? AND device_key IS NOT NULL",
            (problem_id, since),
        )
        return {key for (key,) in rows}

    def passed(self, problem_id: str, before: float = math.inf) -> list[Evaluation]:
        """Return evaluations of a problem that passed and were measured before a moment (seconds
        since the epoch), on any device, oldest first.
        """
        rows = self._rows(
            "SELECT evaluation FROM evaluations WHERE problem_id = ? AND status = 'passed'"
            " AND recorded_at < ? ORDER BY id",
            (problem_id, before),
        )
        evaluations = (decoded(blob) for (blob,) in rows)
        return [e for e in evaluations if e is not None and e.measurements]

    def recorded(self) -> list[tuple[float, Evaluation]]:
        """Return every evaluation that this version reads, oldest first, with its recording time in
        seconds since the epoch.
        """
        rows = self._rows("SELECT recorded_at, evaluation FROM evaluations ORDER BY id", ())
        found = ((float(moment), decoded(blob)) for moment, blob in rows)
        return [(moment, evaluation) for moment, evaluation in found if evaluation is not None]

    def note(self, kind: str, key: str, value: Any) -> None:
        """Keep a record or plain data under a name; what was there is replaced."""
        self._write(
            "INSERT OR REPLACE INTO notes (kind, key, recorded_at, value) VALUES (?, ?, ?, ?)",
            (kind, key, time.time(), msgspec.json.encode(value)),
        )

    def noted(self, kind: str, key: str, form: type[T]) -> T | None:
        """Return the note under a name; None where there is none, or where another version wrote
        it.
        """
        rows = self._rows("SELECT value FROM notes WHERE kind = ? AND key = ?", (kind, key))
        return read_note(rows[0][0], form) if rows else None

    def all_noted(self, kind: str, form: type[T], before: float = math.inf) -> dict[str, T]:
        """Return all notes of a kind that were recorded before a moment, by key."""
        rows = self._rows(
            "SELECT key, value FROM notes WHERE kind = ? AND recorded_at < ? ORDER BY key",
            (kind, before),
        )
        found = {key: read_note(value, form) for key, value in rows}
        return {key: value for key, value in found.items() if value is not None}

    def run_started_at(self, run_id: str) -> float:
        """Return when a run started, in seconds since the epoch. Raises KeyError."""
        for (started_at,) in self._rows("SELECT started_at FROM runs WHERE id = ?", (run_id,)):
            return float(started_at)
        raise KeyError(run_id)

    def start_run(self, arguments: Mapping[str, Any]) -> str:
        """Note that a run with these arguments began; returns its id."""
        run_id = uuid.uuid4().hex[:16]
        self._write(
            "INSERT INTO runs (id, started_at, arguments) VALUES (?, ?, ?)",
            (run_id, time.time(), canonical(arguments)),
        )
        return run_id

    def finish_run(self, run_id: str) -> None:
        """Note that a run came to its end."""
        self._write("UPDATE runs SET finished_at = ? WHERE id = ?", (time.time(), run_id))

    def unfinished_run(self, arguments: Mapping[str, Any]) -> Run | None:
        """Return the last run with these arguments if it was cut short; None otherwise."""
        rows = self._rows(
            "SELECT id, started_at, arguments, finished_at FROM runs WHERE arguments = ?"
            " ORDER BY started_at DESC, rowid DESC LIMIT 1",
            (canonical(arguments),),
        )
        if not rows or rows[0][3] is not None:
            return None
        run_id, started_at, text, _ = rows[0]
        return Run(id=run_id, started_at=started_at, arguments=msgspec.json.decode(text))

    def _write(self, statement: str, row: tuple[Any, ...]) -> None:
        with self._lock, explained(self.path), transaction(self._connection):
            self._connection.execute(statement, row)

    def _rows(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._lock, explained(self.path):
            return self._connection.execute(statement, parameters).fetchall()


def make_folder(folder: Path) -> None:
    """Make the folder of the archive, in such a way that git does not offer to commit it."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ArchiveError(
            f"{folder}: the folder of the archive cannot be made: {error.strerror}; "
            "set `state-dir` (or CUDAL1_CI_STATE_DIR) to a folder that can be written"
        ) from error


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Set how the file is written, make its tables if it is new, refuse it if it is not ours."""
    enable_wal(connection)
    # FULL, not NORMAL: a trial takes seconds and an fsync milliseconds, so that even a power cut
    # may lose none.
    connection.execute("PRAGMA synchronous = FULL")
    # Immediate: of two processes that open a new file, one makes the tables and the other waits;
    # and a file that cannot be written is found out now, not after the first trial.
    with transaction(connection):
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if num_tables == 0 and application_id == 0:
            create_tables(connection)
        elif application_id == APPLICATION_ID and version == 1:
            connection.execute(NOTES)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif application_id != APPLICATION_ID:
            raise ArchiveError(
                f"{path}: expected an archive of cudal1-ci, found another program's SQLite "
                "database; set `state-dir` to another folder"
            )
        elif version != SCHEMA_VERSION:
            raise ArchiveError(
                f"{path}: expected an archive of schema version {SCHEMA_VERSION}, got version "
                f"{version}, written by another cudal1-ci; upgrade this one "
                "(`pip install -U cudal1-ci`), or set `state-dir` to another folder"
            )


def enable_wal(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log: readers and writer do not wait for each other, and a killed writer
    leaves whole rows. Where the file system cannot do it, SQLite keeps its rollback journal, which
    is as safe.

    The switch needs the file for itself and does not wait as other statements do. Of several
    processes that open a new file at once, all but one fail because it is locked.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file. `executescript` would commit the transaction around it."""
    for statement in (*TABLES.split(";"), NOTES):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run one write: committed as a whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A failed COMMIT may have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Translate SQLite's errors: name the file and what to do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise ArchiveError(f"{path}: {error}; {mend(error, path)}") from error


def is_full(folder: Path) -> bool:
    """Return whether the disk has no room for the files of a database: SQLite reports an I/O error
    there."""
    try:
        return shutil.disk_usage(folder).free < LEAST_BYTES
    except OSError:
        return False


def mend(error: sqlite3.Error, path: Path) -> str:
    """Return what a person can do about an error of SQLite."""
    # Errors of the driver itself (a closed connection) carry no code.
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return (
            f"the file is damaged: move it away (`mv {path} {path}.damaged`) and what it held "
            "will be measured again"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"another process has held it for {BUSY_TIMEOUT_S:.0f} s: wait for it, or end it"
    if name.startswith("SQLITE_FULL") or is_full(path.parent):
        return "make room on disk and run again: what was recorded before is kept"
    return (
        "check that the folder and the file can be written, or set `state-dir` "
        "(or CUDAL1_CI_STATE_DIR) to a folder that can"
    )


def decoded(blob: bytes) -> Evaluation | None:
    """Return the evaluation of a row, also where its repetitions are called launches; None for a
    row that this version does not read, which is as good as absent."""
    try:
        return msgspec.json.decode(renewed(blob), type=Evaluation)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_note(blob: bytes, form: type[T]) -> T | None:
    """Decode a note; None for what another version wrote."""
    try:
        return msgspec.json.decode(blob, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def canonical(arguments: Mapping[str, Any]) -> str:
    """Encode arguments as text; equal arguments give equal text."""
    return msgspec.json.encode(dict(arguments), order="sorted").decode()
