"""Two texts under one name are two tasks, wherever they are told."""

from __future__ import annotations

import json

import msgspec

from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.names import Named, names_apart
from cudal1_ci.report_card.table import render_table
from cudal1_ci.report_card.tasks import Choice, tasks_at
from cudal1_ci.report_card.work import target_of
from tests.unit.report_card.rig import a_run, a_task, told

TEXT = "class Model: ...\ndef get_inputs(): return []\n"


def named(*known):
    return list(names_apart(Named(*one) for one in known).values())


def test_a_name_gets_what_tells_it_apart_and_no_more():
    ours, theirs = ("level1/1", "kernelbench", "1_Square", "a" * 16), ("level1/1", "cuda-l1", "")
    assert named(ours) == ["level1/1"]
    assert sorted(named(ours, (*theirs, "b" * 16))) == [
        "level1/1 (cuda-l1)",
        "level1/1 (kernelbench)",
    ]
    other = ("level1/1", "kernelbench", "1_Cube", "c" * 16)
    found = ["level1/1 (kernelbench, 1_Cube)", "level1/1 (kernelbench, 1_Square)"]
    assert sorted(named(ours, other)) == found
    changed = ("level1/1", "kernelbench", "1_Square", "d" * 16)
    found = ["level1/1 (kernelbench, aaaaaaaa)", "level1/1 (kernelbench, dddddddd)"]
    assert sorted(named(ours, changed)) == found
    assert named(ours, ours) == ["level1/1"], "of two machines"


def corpora(tmp_path):
    """KernelBench, and a release of which one task has another text and one the same."""
    (tmp_path / "level1").mkdir()
    for number in (1, 2):
        (tmp_path / "level1" / f"{number}_x.py").write_text(f"{TEXT}# {number}")
    rows = [
        {"level_id": "1", "task_id": str(number), "ref_code": f"{TEXT}# {more}"}
        for number, more in ((1, "1"), (2, "as it was"))
    ]
    (tmp_path / "h100.json").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "level1", tmp_path / "h100.json"


def test_tasks_of_two_corpora_are_counted_and_chosen_apart(tmp_path):
    paths = corpora(tmp_path)

    def names(*globs):
        return [task.name for task in tasks_at(paths, Choice(globs=globs)).tasks]

    every = ["level1/2 (cuda-l1)", "level1/1", "level1/2 (kernelbench)"]
    assert names() == every
    assert len({target_of(task) for task in tasks_at(paths).tasks}) == 3, "as progress counts them"
    assert names("level1/2") == ["level1/2 (cuda-l1)", "level1/2 (kernelbench)"]
    assert names("* (cuda-l1)") == ["level1/2 (cuda-l1)"]
    parts = [tasks_at(paths, Choice(shard=(one, 2))).tasks for one in (1, 2)]
    assert sorted(task.name for part in parts for task in part) == sorted(every)


def test_parts_of_two_corpora_are_told_apart_when_they_are_merged():
    parts = [
        a_run(
            msgspec.structs.replace(
                told(a_task("level1/1", source), {"playbook": "precision"}), source=source
            )
        )
        for source in ("cuda-l1", "kernelbench")
    ]
    whole = merge(parts)
    found = ["level1/1 (cuda-l1)", "level1/1 (kernelbench)"]
    assert [task.name for task in whole.tasks] == found
    assert merge([whole, *parts]).tasks == whole.tasks
    degenerate = [
        msgspec.structs.replace(one, standing="degenerate", reason="same", results=())
        for part in parts
        for one in part.tasks
    ]
    assert "level1/1 (cuda-l1): same" in render_table(merge([a_run(one) for one in degenerate]))
