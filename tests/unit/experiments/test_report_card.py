"""The order of a report card's parts, and that it goes on where it was."""

from __future__ import annotations

import fnmatch
import json
import sys

import msgspec
import pytest

from cudal1_ci.records import Finding
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.solvers import DEFAULT
from tests.unit.report_card.rig import a_run, a_task, told

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = torch.nn.Linear(dim, dim, bias=False)
    def forward(self, x):
        return {answer}
def get_inputs():
    return [torch.randn(1024, 256)]
def get_init_inputs():
    return [256]
"""


@pytest.fixture
def report_card(experiment_module):
    return experiment_module("report_card")


def test_sizes_are_found_without_computing(report_card):
    num_bytes = report_card.num_bytes
    held = 4 * (1024 * 256 + 256 * 256)
    assert num_bytes(REFERENCE.format(answer="self.fc(x)")) == held + 4 * 1024 * 256
    assert num_bytes(REFERENCE.format(answer="x * x.sum().item()")) is None
    assert num_bytes("import nothing_of_that_name") is None


def test_large_tasks_come_last_and_have_few_judges(report_card):
    light = {f"level1/{number}": number for number in range(120)}
    large = {"level2/1": report_card.LARGE_BYTES + 1, "level2/2": None}
    first, last = report_card.parts_of({**large, **light}, 2, 8, set)
    assert (first.name, first.tasks, first.num_judges) == ("light", tuple(light), 8)
    assert (last.name, last.tasks, last.num_judges) == ("large", tuple(large), 2)
    assert [one.name for one in report_card.parts_of(large, 2, 8, set)] == ["large"]


def test_what_had_too_little_memory_among_many_is_judged_among_few(report_card):
    crowded = {"level1/1"}
    parts = report_card.parts_of(
        dict.fromkeys(("level1/1", "level1/2", "level1/3"), 1), 2, 8, lambda: crowded
    )
    first = next(parts)
    assert (first.name, first.tasks) == ("light", ("level1/2", "level1/3"))
    crowded.add("level1/3")  # seen in what the first part has written
    second = next(parts)
    assert (second.name, second.tasks, second.num_judges) == ("large", ("level1/1", "level1/3"), 2)
    crowded.remove("level1/1")  # in the second it had enough
    (last,) = parts
    assert (last.name, last.tasks, last.num_judges) == ("alone", ("level1/3",), 1)


def test_what_one_judge_alone_had_too_little_memory_for_does_not_come_again(report_card):
    parts = report_card.parts_of({"level1/1": 1}, 1, 8, lambda: {"level1/1"})
    assert [one.name for one in parts] == ["large"]


def test_too_little_memory_settles_nothing(report_card, tmp_path):
    one, two, three = (a_task(f"level1/{n}", f"class Model: {n} = 0") for n in (1, 2, 3))

    def invalid(task, rule):
        findings = (Finding(rule=rule, message="", line=None, evidence=None),)
        return msgspec.structs.replace(told(task, {}), standing="invalid", findings=findings)

    file = tmp_path / "light.json"
    run = a_run(invalid(one, "memory.device"), invalid(two, "reference.raised"))
    file.write_bytes(msgspec.json.encode(run))
    assert report_card.still_open([one, two, three], [file]) == [one, three]
    assert report_card.still_open([one, two, three], [file], ["eager"]) == [one, three]
    assert report_card.crowded_in([one, two, three], [file, tmp_path / "none"]) == {"level1/1"}


def test_a_column_of_a_candidate_that_had_too_little_memory_is_open(report_card, tmp_path):
    one = a_task()
    document = told(one, {"eager": "inconclusive", "compile": 1.5})
    file = tmp_path / "light.json"

    def written(rule):
        finding = Finding(rule=rule, message="", line=None, evidence=None)
        eager, other = document.results
        (trial,) = eager.trials
        trial = msgspec.structs.replace(trial, findings=(finding,))
        eager = msgspec.structs.replace(eager, trials=(trial,))
        run = a_run(msgspec.structs.replace(document, results=(eager, other)))
        file.write_bytes(msgspec.json.encode(run))
        columns = (["eager", "compile"], ["compile"])
        is_open = [report_card.still_open([one], [file], some) == [one] for some in columns]
        return is_open, report_card.crowded_in([one], [file])

    assert written("memory.device") == ([True, False], {"level1/1"})
    assert written("timing.noisy") == ([False, False], set())


@pytest.fixture
def begun(report_card, monkeypatch, tmp_path):
    """The parts that were begun, and how to call the script on one task."""
    task = tmp_path / "level1"
    task.mkdir()
    (task / "1_product.py").write_text(REFERENCE.format(answer="self.fc(x)"))
    found = []
    monkeypatch.setattr(report_card, "run", lambda part, *rest: found.append((part.name, *rest)))
    monkeypatch.setattr(report_card, "merged", lambda *_: found.append("merged"))

    def call(minutes):
        found.clear()
        words = [str(tmp_path), "--device", "cuda:0,cuda:1", "--minutes", minutes]
        monkeypatch.setattr(sys, "argv", ["report_card.py", *words, "--folder", str(tmp_path)])
        report_card.main()
        return found

    return call


def write_run(file, problem_id, ended):
    task = msgspec.structs.replace(told(a_task(), {"eager": 1.0}), problem_id=problem_id)
    file.write_bytes(msgspec.json.encode(a_run(task, ended=ended)))


def test_what_is_done_is_not_done_again(begun, tmp_path):
    names = [one[0] if one != "merged" else one for one in begun("5")]
    assert names == ["light", "merged"]
    ((problem_id, size),) = json.loads((tmp_path / "sizes.json").read_text()).items()
    assert size == 2359296
    write_run(tmp_path / "light.json", problem_id, "budget")
    ((name, paths, solvers, devices, folder, seconds), last) = begun("5")
    assert (name, devices, folder, last) == ("light", ["cuda:0", "cuda:1"], tmp_path, "merged")
    assert (paths, solvers) == ([tmp_path], ",".join(DEFAULT))
    assert 240 < seconds <= 300
    write_run(tmp_path / "light.json", problem_id, "done")
    assert begun("5") == ["merged"]


def test_what_an_earlier_card_has_settled_is_left_alone(report_card, tmp_path):
    one, two, three = (a_task(f"level1/{n}", f"class Model: {n} = 0") for n in (1, 2, 3))
    missing = msgspec.structs.replace(told(two, {}), standing="missing")
    earlier, light = tmp_path / "earlier.json", tmp_path / "light.json"
    earlier.write_bytes(msgspec.json.encode(a_run(told(one, {"eager": 1.0}), missing)))
    assert report_card.still_open([one, two, three], [earlier], ["eager"]) == [two, three]
    assert report_card.still_open([one, two, three], [earlier], ["eager", "best"]) == [
        one,
        two,
        three,
    ]
    assert report_card.still_open([one], []) == [one]
    other = tmp_path / "other.json"  # the other column, of another run
    other.write_bytes(msgspec.json.encode(a_run(told(one, {"best": 1.0}))))
    assert report_card.still_open([one], [earlier, other], ["eager", "best"]) == []
    light.write_bytes(msgspec.json.encode(a_run(told(two, {"eager": 1.0}))))
    report_card.merged(tmp_path, [earlier])
    whole = read_run(tmp_path / "run.json")
    assert [task.name for task in whole.tasks] == ["level1/1", "level1/2"]
    assert {row.num_tasks for row in whole.card} == {2}


def test_what_was_done_of_other_tasks_or_of_another_text_is_not_done(begun, tmp_path):
    write_run(tmp_path / "light.json", "of another text", "done")
    assert [one[0] for one in begun("5")[:-1]] == ["light"]


def test_of_one_name_the_largest_size_counts_and_a_changed_text_has_its_own(report_card, tmp_path):
    def sized(*answers):
        tasks = []
        for number, answer in enumerate(answers):
            text = REFERENCE.format(answer=answer)
            file = tmp_path / str(number) / "level1" / "1_x.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            tasks += report_card.tasks_at([file]).tasks
        return report_card.sizes_of(tasks, tmp_path / "sizes.json")

    inputs, weights = 4 * 1024 * 256, 4 * 256 * 256
    assert sized("x.sum()") == {"level1/1": inputs + weights + 4}
    assert sized("x") == {"level1/1": 2 * inputs + weights}
    assert sized("x.sum()", "x") == sized("x", "x.sum()") == {"level1/1": 2 * inputs + weights}
    assert sized("x", "x.nothing()") == {"level1/1": None}


def test_without_time_only_sizes_are_found(begun, tmp_path):
    assert begun("0") == ["merged"]
    assert (tmp_path / "sizes.json").exists()


@pytest.fixture
def fake(report_card, monkeypatch, tmp_path):
    """A run of this script in the place of `cudal1-ci bench`; what it said."""

    def call(script, seconds, task="level1/1"):
        file = tmp_path / "fake"
        file.write_text(f"#!{sys.executable}\n{script}")
        file.chmod(0o755)
        monkeypatch.setattr(report_card.sys, "executable", str(file))
        part = report_card.Part("light", (task,), 3)
        devices = ["cuda:0", "cpu"]
        report_card.run(part, [tmp_path], "eager,best", devices, tmp_path, seconds)
        return (tmp_path / "light.log").read_text()

    monkeypatch.setattr(report_card, "END_S", 5.0)
    return call


def test_a_part_has_its_tasks_columns_and_judges(fake):
    said = fake(
        "import os, sys; print(sys.argv[3:], os.environ['CUDAL1_CI_TRIAL_NUM_LAUNCHES'])", 9
    )
    columns, seats = "eager,best", "cuda:0,cuda:0,cuda:0,cpu"
    words = f"'--task', 'level1/1', '--solvers', '{columns}', '--device', '{seats}'"
    assert words in said
    assert said.endswith("'--budget', '9s', '--output', 'light.json'] 1\n")


def test_a_name_with_brackets_is_chosen_by_itself(fake):
    (pattern,) = fake(
        "import sys; print(sys.argv[sys.argv.index('--task') + 1])", 9, task="deep/norm[2]"
    ).splitlines()
    assert fnmatch.fnmatch("deep/norm[2]", pattern)
    assert not fnmatch.fnmatch("deep/norm2", pattern)


def test_a_part_that_does_not_end_is_told_to(fake):
    script = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('told')\n"
    assert fake(script, -4.0) == "told\n"


def test_a_part_that_does_not_listen_is_ended(fake, report_card, monkeypatch):
    monkeypatch.setattr(report_card, "END_S", 1.0)
    script = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)\n"
    with pytest.raises(SystemExit, match="exit code -9"):
        fake(script, 1.0)


def test_a_part_that_fails_ends_all_with_its_words(fake):
    with pytest.raises(SystemExit, match="light: exit code 4\nno such device"):
        fake("import sys; print('no such device'); sys.exit(4)", 9)
