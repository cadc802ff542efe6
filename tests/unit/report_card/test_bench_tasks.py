"""Which tasks there are at a place, and under which name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.report_card.tasks import Choice, natural, tasks_at

SMALL = Path(__file__).parents[2] / "bench_tasks"
TEXT = "class Model: ...\ndef get_inputs(): return []\n"


def names(*paths, **choice):
    return [task.name for task in tasks_at(paths, Choice(**choice)).tasks]


def written(path, text=TEXT, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding=encoding)
    return path


def rows(*tasks):
    return [
        {"level_id": level, "task_id": number, "ref_code": f"{TEXT}# {level} {number}\n"} | more
        for level, number, more in tasks
    ]


def test_a_checkout_is_read_from_its_top_its_inner_folder_or_one_level():
    every = ["level1/1", "level1/2", "level1/3", "level2/1", "level2/2"]
    assert names(SMALL / "KernelBench") == every
    assert names(SMALL) == every
    assert names(SMALL / "KernelBench" / "level2") == ["level2/1", "level2/2"]
    assert names(SMALL / "KernelBench" / "level1" / "3_Hinge_loss.py") == ["level1/3"]


def test_published_kernels_join_the_task_of_the_same_reference():
    found = tasks_at([SMALL / "KernelBench", SMALL / "published.json"]).tasks
    assert len(found) == 5
    claims = {task.name: [one.claimed_speedup for one in task.published] for task in found}
    assert claims == {
        "level1/1": [2.5],
        "level1/2": [3.0],
        "level1/3": [],  # withdrawn: the text `None`, its score left standing
        "level2/1": [],
        "level2/2": [40.0],
    }


def test_both_forms_of_a_release_are_read(tmp_path):
    lines = rows(("1", "2", {"custom_code": "code", "score_default": "1.5"}), ("3", "1", {}))
    new = written(tmp_path / "h100.json", "\n".join(map(json.dumps, lines)))
    row = {"task_id": "2", "ref_code": lines[0]["ref_code"], "custom_code": "c", "score": "1.25"}
    by_level = {"1": [row], "2": []}
    old = written(tmp_path / "a100.json", json.dumps(by_level))
    (first, second) = tasks_at([new, old]).tasks
    assert (first.name, second.name) == ("level1/2", "level3/1")
    assert [one.origin for one in first.published] == ["h100", "a100"]
    assert second.published == ()
    (alone,) = tasks_at([old]).tasks
    assert alone.published[0].claimed_speedup == 1.25


def test_a_row_ends_where_its_line_ends_and_not_within_a_text(tmp_path):
    code = "a = 'a line\u2028and\u2029another\x85one'"
    lines = [json.dumps(one, ensure_ascii=False) for one in rows(("1", "1", {"custom_code": code}))]
    (task,) = tasks_at([written(tmp_path / "h100.json", "\n".join(lines))]).tasks
    assert task.published[0].code == code


def test_a_claim_that_is_no_number_is_none(tmp_path):
    more = {"custom_code": "code", "score_default": "inf"}
    (task,) = tasks_at([written(tmp_path / "a.json", json.dumps(*rows(("1", "1", more))))]).tasks
    assert task.published[0].claimed_speedup is None


def test_any_folder_of_such_files_is_read_and_others_are_named(tmp_path):
    written(tmp_path / "mine" / "attention.py")
    written(tmp_path / "mine" / "deep" / "norm.py", TEXT + "#")
    written(tmp_path / "mine" / "helpers.py", "import torch\n")
    found = tasks_at([tmp_path / "mine"])
    assert [task.name for task in found.tasks] == ["attention", "deep/norm"]
    assert [task.source for task in found.tasks] == ["mine", "mine"]
    (line,) = found.left_out
    assert "helpers.py" in line


def test_a_broken_file_of_a_checkout_keeps_no_other_from_being_judged(tmp_path):
    written(tmp_path / "level1" / "__init__.py", "")
    written(tmp_path / "level1" / "1_good.py")
    written(tmp_path / "level1" / "2_broken.py", "def Model(:\n")
    latin = "# caf\xe9, in an encoding of before\n" + TEXT
    (tmp_path / "level1" / "3_latin.py").write_bytes(latin.encode("latin-1"))
    found = tasks_at([tmp_path])
    assert [task.name for task in found.tasks] == ["level1/1", "level1/3"]
    (line,) = found.left_out
    assert "2_broken.py:1:" in line


def test_a_broken_row_of_a_release_keeps_no_other_from_being_judged(tmp_path):
    broken = ("1", "2", {"ref_code": "class Model: ..."})
    lines = map(json.dumps, rows(("1", "1", {}), broken, ("1", "3", {})))
    found = tasks_at([written(tmp_path / "h100.json", "\n".join(lines))])
    assert [task.name for task in found.tasks] == ["level1/1", "level1/3"]
    (line,) = found.left_out
    assert "h100.json: level1/2: expected a top-level `get_inputs`" in line
    alone = written(tmp_path / "a100.json", json.dumps(rows(broken)[0]))
    with pytest.raises(ConfigError, match=r"none of 1 rows is a task; the first: .*level1/2"):
        tasks_at([alone])


def test_of_a_checkout_without_a_task_the_first_reason_is_said(tmp_path):
    written(tmp_path / "level1" / "1_broken.py", "def Model(:\n")
    with pytest.raises(ConfigError, match=r"found none; the first .*1_broken.py:1:"):
        tasks_at([tmp_path])


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "mine.py").write_bytes(b"# caf\xe9\n" + TEXT.encode())
    with pytest.raises(ConfigError, match=r"mine.py: expected Python in UTF-8"):
        tasks_at([tmp_path / "mine.py"])


def test_a_byte_order_mark_makes_no_other_task(tmp_path):
    (row,) = rows(("1", "2", {"custom_code": "code"}))
    marked = row | {key: "\ufeff" + row[key] for key in ("ref_code", "custom_code")}
    found = tasks_at(
        [
            written(tmp_path / "h100.json", json.dumps(row)),
            written(tmp_path / "a100.json", "\ufeff" + json.dumps(marked)),
            written(tmp_path / "level1" / "2_own.py", "\ufeff" + row["ref_code"]),
        ]
    )
    (task,) = found.tasks
    assert [one.code for one in task.published] == ["code", "code"]
    assert found.left_out == ()


def test_a_choice_is_made_before_the_shard(tmp_path):
    for number in range(1, 12):
        written(tmp_path / "level1" / f"{number}_x.py", f"{TEXT}# {number}")
        written(tmp_path / "level2" / f"{number}_x.py", f"{TEXT}# 2 {number}")
    assert names(tmp_path, levels=(1,), shard=(2, 4)) == ["level1/2", "level1/6", "level1/10"]
    assert names(tmp_path, globs=("level2/1*",)) == ["level2/1", "level2/10", "level2/11"]
    parts = [set(names(tmp_path, shard=(number, 3))) for number in (1, 2, 3)]
    assert set.union(*parts) == set(names(tmp_path))
    assert sum(map(len, parts)) == 22


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda root: root / "nowhere", "got nothing"),
        (lambda root: root, "found none"),
        (lambda root: written(root / "a.json", "[1]"), "a JSON object a line"),
        (lambda root: written(root / "a.json", "{}"), "a row of the release"),
        (lambda root: written(root / "a.json", '{"1": [1]}'), "level 1: expected rows that are"),
        (lambda root: written(root / "a.json", "[" * 100_000), "a JSON object a line"),
        (
            lambda root: written(root / "a.json", TEXT, "utf-16"),
            "a.json: expected a release in UTF",
        ),
        (lambda root: written(root / "a.py", "x = 1"), "expected a top-level `Model`"),
        (
            lambda root: written(root / "optimized_cuda_code" / "h100.json").parents[1],
            "name one of optimized_cuda_code/h100.json",
        ),
    ],
)
def test_what_is_no_task_says_what_was_expected(tmp_path, make, said):
    with pytest.raises(ConfigError, match=said):
        tasks_at([make(tmp_path)])


def test_a_choice_of_nothing_is_an_error():
    with pytest.raises(ConfigError, match="none of the 5 tasks"):
        names(SMALL, levels=(7,))


def test_numbers_are_counted_in_names():
    assert sorted(["level1/10", "level1/9", "b", "a2"], key=natural) == [
        "a2",
        "b",
        "level1/9",
        "level1/10",
    ]


def test_a_superscript_in_a_name_is_no_number():
    assert sorted(["square_x²", "square_x10", "square_x9"], key=natural) == [
        "square_x9",
        "square_x10",
        "square_x²",
    ]
