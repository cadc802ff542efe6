"""A repository is asked about what would be proposed of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover import DiscoveryConfig
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.accept import Acceptor, script_of_command
from cudal1_ci.records import (
    Acceptance,
    AcceptanceLine,
    Candidate,
    Evaluation,
    OverlayFile,
    TextProgram,
    TreeProgram,
    content_hash,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.wording import acceptance_text
from tests.fakes import CPU, GPU, FakeProposer, FakeSession, a_problem, an_evaluation
from tests.unit.discover.test_readers import FUSED, HOOK, MODEL, OLD
from tests.unit.optimize.test_pipeline import Screening, Setting

ANSWERS = {"slow": ("passed", 1.5), "fast": ("passed", 3.0), "wrong": ("incorrect_values", 9.0)}
TREE = TreeProgram(root=".", import_root=".", import_path="m:Block", digest="d")


def write(root: Path, **files: str) -> None:
    """Write a package with the attention, and other files."""
    folder = root / "pkg"
    folder.mkdir(exist_ok=True)
    for name, text in {"__init__": "", "model": MODEL, **files}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def patched(root: Path, after: str) -> Evaluation:
    """Return an evaluation of a candidate that has other text in `pkg/model.py`."""
    program = TreeProgram(
        root=str(root),
        import_root=".",
        import_path="pkg.model:Attention",
        digest="d",
        overlay=(OverlayFile(path="pkg/model.py", text=after, base_digest=content_hash(MODEL)),),
    )
    return an_evaluation(Candidate(problem_id="p", program=program, proposer="playbook:sdpa"))


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


def accepted(root: Path, archive: Archive, after: str) -> Acceptance:
    acceptor = Acceptor(root, DiscoveryConfig(), archive)
    found = acceptor.accepted(patched(root, after), 600.0).acceptance
    assert found is not None
    return found


def test_a_patch_that_a_hook_relies_on_is_refused_with_its_place(
    tmp_path: Path, archive: Archive
) -> None:
    write(tmp_path, recorder=HOOK)
    found = accepted(tmp_path, archive, MODEL.replace(OLD, FUSED))
    assert acceptance_text(found) == (
        "Refused: pkg/recorder.py:6 hooks `attend`, which the patch no longer calls"
    )


def test_what_is_left_unused_is_stated(tmp_path: Path, archive: Archive) -> None:
    write(tmp_path)
    found = accepted(tmp_path, archive, MODEL.replace(OLD, FUSED))
    assert not found.broken
    assert [(one.kind, one.result, one.line) for one in found.lines] == [("unused", "stated", 10)]
    assert acceptance_text(found) == "Accepted: nothing in 2 files relies on what it leaves out"


def test_a_hook_in_a_test_is_found_though_tests_hold_no_targets(
    tmp_path: Path, archive: Archive
) -> None:
    write(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_model.py").write_text(HOOK, encoding="utf-8")
    config = DiscoveryConfig(include=("pkg/model.py",))
    acceptor = Acceptor(tmp_path, config, archive)
    found = acceptor.accepted(patched(tmp_path, MODEL.replace(OLD, FUSED)), 600.0).acceptance
    assert found is not None
    assert [one.path for one in found.broken] == ["tests/test_model.py"]


def test_a_hook_above_the_folder_that_is_scanned_is_found(tmp_path: Path, archive: Archive) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    write(folder)
    (tmp_path / "record.py").write_text(HOOK, encoding="utf-8")
    acceptor = Acceptor(folder, DiscoveryConfig(), archive, top=tmp_path)
    found = acceptor.accepted(patched(folder, MODEL.replace(OLD, FUSED)), 600.0).acceptance
    assert found is not None
    assert [(one.path, one.line) for one in found.broken] == [("record.py", 6)]


def test_what_was_found_is_kept_for_the_same_tree(tmp_path: Path, archive: Archive) -> None:
    write(tmp_path)
    after = MODEL.replace(OLD, FUSED)
    first = accepted(tmp_path, archive, after)
    assert accepted(tmp_path, archive, after) == first, "with the seconds that it took"
    write(tmp_path, recorder=HOOK)
    assert accepted(tmp_path, archive, after).broken, "another file has come"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("make trace", ["`make trace`: of a trace command, a Python file of the checkout is run"]),
        ("python -m pytest -q", []),
        ("python pkg/model.py", []),
        (None, []),
    ],
)
def test_a_trace_command_that_is_not_run_is_named(tmp_path, archive, command, said):
    write(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def start(root, import_roots):
        raise WorkerError("none here")

    acceptor = Acceptor(
        tmp_path, DiscoveryConfig(), archive, start=start, limit_s=60.0, trace=command
    )
    found = acceptor.accepted(patched(tmp_path, MODEL.replace(OLD, FUSED)), 600.0).acceptance
    missing = [one.detail for one in found.lines if one.result == "not_run"]
    assert [one for one in missing if one != "none here"] == said


def test_programs_that_run_nowhere_are_named(tmp_path: Path, archive: Archive) -> None:
    write(tmp_path)
    acceptor = Acceptor(tmp_path, DiscoveryConfig(), archive, limit_s=60.0)
    found = acceptor.accepted(patched(tmp_path, MODEL.replace(OLD, FUSED)), 600.0).acceptance
    assert found is not None
    missing = [one.detail for one in found.lines if one.result == "not_run"]
    assert missing == ["tests and examples run with `--executor local` only"]


def test_a_text_has_no_repository(tmp_path: Path, archive: Archive) -> None:
    program = TextProgram(source="class ModelNew: ...", entry="ModelNew")
    given = an_evaluation(Candidate(problem_id="p", program=program, proposer="x"))
    assert Acceptor(tmp_path, DiscoveryConfig(), archive).accepted(given, 600.0) is given


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --steps 3", ("train.py", ("--steps", "3"))),
        ("env X=1 python pkg/model.py", ("pkg/model.py", ())),
        ("python -m pytest tests/test_model.py", None),
        ("python missing.py", None),
        ("make trace", None),
    ],
)
def test_a_trace_command_that_runs_a_file_is_one_of_the_programs(tmp_path, command, found):
    write(tmp_path)
    (tmp_path / "train.py").write_text("import pkg.model\n", encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_model.py").write_text("", encoding="utf-8")
    script = script_of_command(command, tmp_path.resolve())
    assert (script and (script.path, script.arguments)) == found


class Refusing:
    """Refuses some sources: after a search, or after its programs ran."""

    def __init__(self, searched: tuple[str, ...] = (), run: tuple[str, ...] = ()):
        self.refused_by_search, self.refused_by_run = searched, run
        self.asked: list[str] = []

    def searched(self, evaluation: Evaluation) -> Evaluation:
        return self.of(evaluation, self.refused_by_search)

    def accepted(self, evaluation: Evaluation, left_s: float, qualname: str) -> Evaluation:
        if evaluation.acceptance is not None:
            return evaluation
        self.asked.append(evaluation.candidate.program.source)
        found = self.of(evaluation, (*self.refused_by_search, *self.refused_by_run))
        if found is evaluation:
            return msgspec.structs.replace(evaluation, acceptance=Acceptance(num_tests=3))
        return found

    def of(self, evaluation: Evaluation, refused: tuple[str, ...]) -> Evaluation:
        if evaluation.candidate.program.source not in refused:
            return evaluation
        line = AcceptanceLine(kind="hook", result="broken", detail="hooks it", path="a.py", line=3)
        return msgspec.structs.replace(evaluation, acceptance=Acceptance(lines=(line,)))


def reviewed(path, session, acceptor, sources=tuple(ANSWERS)):
    problem = msgspec.structs.replace(a_problem(), reference=TREE)
    proposer = FakeProposer(list(sources))
    (entry,) = Setting(path, session, proposer, (problem,), acceptor=acceptor).review().entries
    return entry


def best_source(entry):
    return None if entry.best is None else entry.evaluations[entry.best].candidate.program.source


def test_the_next_best_is_proposed_where_the_repository_refuses_the_best(tmp_path):
    acceptor = Refusing(run=("fast",))
    entry = reviewed(tmp_path, FakeSession(ANSWERS), acceptor)
    assert acceptor.asked == ["fast", "slow"]
    assert best_source(entry) == "slow"
    assert entry.evaluations[entry.best].acceptance.num_tests == 3


def test_only_what_keeps_its_contract_is_asked_about(tmp_path):
    session, acceptor = FakeSession(ANSWERS), Refusing()
    session.breaking = ["fast"]
    entry = reviewed(tmp_path, session, acceptor)
    assert acceptor.asked == ["slow"]
    assert best_source(entry) == "slow"


class AtOnce(FakeSession):
    """Tries a contract on a GPU for as long as the repository's programs run."""

    def __init__(self, answers, device):
        super().__init__(answers)
        self.kind, self.began, self.programs = device, threading.Event(), threading.Event()
        self.overlapped = False

    def device(self):
        return self.kind

    def examine_contract(self, problem, evaluation):
        self.began.set()
        self.overlapped |= self.programs.wait(5 if self.kind is GPU else 0.1)
        return super().examine_contract(problem, evaluation)


class Meeting(Refusing):
    """Runs its programs while a contract is tried, if one is."""

    def __init__(self, session):
        super().__init__()
        self.session = session

    def accepted(self, evaluation, left_s, qualname):
        if self.session.kind is GPU:
            assert self.session.began.wait(5)
        self.session.programs.set()
        return super().accepted(evaluation, left_s, qualname)


@pytest.mark.parametrize(("device", "overlaps"), [(GPU, True), (CPU, False)])
def test_on_a_gpu_programs_run_while_the_contract_is_tried(tmp_path, device, overlaps):
    session = AtOnce(ANSWERS, device)
    entry = reviewed(tmp_path, session, Meeting(session))
    assert session.overlapped is overlaps
    assert best_source(entry) == "fast"
    assert entry.evaluations[entry.best].acceptance.num_tests == 3
    assert entry.evaluations[entry.best].contract


def test_what_breaks_its_contract_on_a_gpu_is_not_said_to_be_accepted(tmp_path):
    session = AtOnce(ANSWERS, GPU)
    session.breaking = ["fast"]
    entry = reviewed(tmp_path, session, Meeting(session))
    assert best_source(entry) == "slow"
    found = {one.candidate.program.source: one.acceptance for one in entry.evaluations}
    assert found["fast"] is None and found["slow"].num_tests == 3


def test_a_search_waits_for_no_program(tmp_path, archive):
    write(tmp_path, hooked=HOOK)
    acceptor = Acceptor(tmp_path, DiscoveryConfig(), archive)
    refused = patched(tmp_path, MODEL.replace(OLD, FUSED))
    with acceptor.running:  # as a slot does whose programs run
        found = []
        search = threading.Thread(
            target=lambda: found.append(acceptor.searched(refused)), daemon=True
        )
        search.start()
        search.join(20)
    assert found and found[0].is_refused


def test_what_the_search_refuses_is_not_confirmed(tmp_path):
    screened = {"a": 3.0, "b": 2.5, "c": 2.0, "d": 1.8}
    session = Screening(screened, screened)
    entry = reviewed(tmp_path, session, Refusing(searched=("a", "b")), screened)
    assert session.was_confirmed == ["c", "d"]
    assert best_source(entry) == "c"
    assert [one.is_refused for one in entry.evaluations] == [True, True, False, False]


def test_a_second_run_asks_again_though_it_knows_the_evaluation(tmp_path):
    reviewed(tmp_path, FakeSession(ANSWERS), Refusing(run=("fast",)))
    acceptor = Refusing()
    entry = reviewed(tmp_path, FakeSession({}), acceptor)
    assert acceptor.asked == ["fast"], "the tree may be another one"
    assert best_source(entry) == "fast"
