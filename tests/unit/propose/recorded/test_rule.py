"""Changes of a rule, written into the program."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.look import unique_changes
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, candidate_with, shown
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.records import Candidate, Generation, TextProgram
from tests.fakes import an_evaluation
from tests.unit.propose.recorded.rig import problem_and_recording

TEXT = """
from math import sqrt

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        half = sqrt(0.25)
        scaled = x * half
        kept = x.relu()
        # of the result
        result = scaled.sin() + kept
        return result


def get_inputs():
    return [torch.rand(3, 3)]
"""


def renamed(name: str, code: str, rule: str = "rule") -> RecordedRule:
    """Put code in the place of every operation of a name."""

    def find(call: Call) -> Iterator[Change]:
        for one in call.graph.operations:
            place = call.source.place(one)
            if one.name == name and place is not None:
                yield Change(file=place.file, new={place.node: code}, found=shown(one, call.source))

    return RecordedRule(name=rule, family="family", why="why", precondition="", find=find)


def written(tmp_path, text: str, *rules: RecordedRule):
    problem, recording = problem_and_recording(tmp_path, text)
    graph = graph_of(recording)
    call = Call(problem, graph, Source(problem.reference, graph))
    return candidate_with(call, [(one, c) for one in rules for c in unique_changes(one, call)])


def source_of(candidate) -> str:
    assert isinstance(candidate.program, TextProgram)
    return candidate.program.source


def test_what_only_the_old_expression_read_is_removed(tmp_path):
    found = written(tmp_path, TEXT, renamed("sin", "x.cos()"))
    body = source_of(found).partition("def forward(self, x):\n")[2].partition("\n\n")[0]
    assert body.splitlines() == [
        "        kept = x.relu()",
        "        # of the result",
        "        result = x.cos() + kept",
        "        return result",
    ]
    assert "import sqrt" not in source_of(found)
    assert [edit.found for edit in found.edits] == [("scaled.sin()",)]


def test_a_change_within_another_is_left_out(tmp_path):
    inner, outer = renamed("sin", "x.cos()", "inner"), renamed("add", "x.exp()", "outer")
    for first, second in ((inner, outer), (outer, inner)):
        found = written(tmp_path, TEXT, first, second)
        assert [edit.operator for edit in found.edits] == [first.name]
        assert ("x.cos()" in source_of(found)) == (first is inner)
        assert ("x.exp()" in source_of(found)) == (first is outer)


def test_changes_that_do_not_touch_are_made_together(tmp_path):
    found = written(tmp_path, TEXT, renamed("sin", "x.cos()", "a"), renamed("relu", "x.abs()", "b"))
    assert [edit.operator for edit in found.edits] == ["a", "b"]
    assert "x.cos() + kept" in source_of(found) and "kept = x.abs()" in source_of(found)


def test_an_expression_of_a_loop_is_changed_once_and_not_where_it_should_read_otherwise(tmp_path):
    text = TEXT.replace("kept = x.relu()", "for n in (1, 2):\n            kept = x.relu()")
    assert source_of(written(tmp_path, text, renamed("relu", "x.abs()"))).count("x.abs()") == 1

    def differ(call: Call) -> Iterator[Change]:
        for number, change in enumerate(renamed("relu", "").find(call)):
            yield Change(
                file=change.file, new=dict.fromkeys(change.new, f"x.mul({number})"), found=""
            )

    rule = RecordedRule(name="differ", family="f", why="", precondition="", find=differ)
    assert written(tmp_path, text, rule) is None


def test_a_statement_is_removed_and_several_take_its_place(tmp_path):
    def find(call: Call) -> Iterator[Change]:
        for one in call.graph.operations:
            place = call.source.place(one)
            if one.name == "add" and place is not None:
                code = "part = x.cos()\nresult = part + 1\n"
                yield Change(file="", new={place.statement: code}, found="")
            if one.name == "relu" and place is not None:
                yield Change(file="", new={place.statement: ""}, found="")

    rule = RecordedRule(name="r", family="f", why="", precondition="", find=find)
    body = source_of(written(tmp_path, TEXT, rule)).partition("def forward(self, x):\n")[2]
    assert body.partition("\n\n")[0].splitlines() == [
        "        # of the result",
        "        part = x.cos()",
        "        result = part + 1",
        "        return result",
    ]


def test_nothing_is_proposed_that_changes_nothing(tmp_path):
    assert written(tmp_path, TEXT, renamed("sin", "scaled.sin()")) is None
    assert written(tmp_path, TEXT, renamed("log", "x")) is None


def test_rules_are_tried_alone_then_all_together_and_a_skipped_one_is_not(tmp_path):
    rules = (renamed("sin", "x.cos()", "a"), renamed("relu", "x.abs()", "b"))
    problem, recording = problem_and_recording(tmp_path, TEXT)
    found = RecordedRewrites(rules=rules).propose_recorded(problem, recording, (), 9)
    assert [[edit.operator for edit in one.edits] for one in found] == [["a"], ["b"], ["a", "b"]]
    assert RecordedRewrites(rules=rules).propose(problem, (), 9) == []


def test_what_gained_is_done_to_the_best_program_of_a_model_too(tmp_path):
    rules = (renamed("sin", "x.cos()", "a"), renamed("relu", "x.abs()", "b"))
    strategy = RecordedRewrites(rules=rules)
    problem, recording = problem_and_recording(tmp_path, TEXT)
    first, second, _ = strategy.propose_recorded(problem, recording, (), 9)
    known = [an_evaluation(first, speedup=0.9), an_evaluation(second, speedup=1.2)]
    text = TEXT.replace("class Model", "class ModelNew").replace("scaled.sin()", "(scaled + 1)")
    program = TextProgram(source=text, entry="ModelNew")
    generation = Generation(model="m", temperature=0.8, max_tokens=9, prompt_digest="0")
    written = Candidate(problem_id=problem.id, program=program, proposer="m", generation=generation)
    slow, fast = (an_evaluation(written, speedup=one) for one in (0.9, 1.5))
    assert strategy.base([*known, slow]) == second
    assert strategy.base([known[0], fast]) is None, "nothing gained in the reference"
    assert strategy.base([*known, fast]) == written
    again = problem_and_recording(tmp_path, text.replace("ModelNew", "Model"))[1]
    (found,) = strategy.propose_on(problem, written, again, [*known, fast], 9)
    assert source_of(found) == text.replace("x.relu()", "x.abs()")
    assert found.generation == generation
    assert [one.operator for one in found.edits] == ["b"]
    assert found.exemplar_ids == (written.id,)


def test_what_a_rewrite_made_possible_is_found_in_its_program(tmp_path):
    rules = (
        renamed("sin", "x.exp()", "a"),
        renamed("exp", "x.log1p()", "b"),
        renamed("relu", "x.abs()", "c"),
    )
    strategy = RecordedRewrites(rules=rules)
    problem, recording = problem_and_recording(tmp_path, TEXT)
    first, other, _ = strategy.propose_recorded(problem, recording, (), 9)
    known = [an_evaluation(first, speedup=1.3), an_evaluation(other, speedup=0.9)]
    assert strategy.base(known) == first
    again = problem_and_recording(tmp_path, source_of(first).replace("ModelNew", "Model"))[1]
    (found,) = strategy.propose_on(problem, first, again, known, 9)
    assert [one.operator for one in found.edits] == ["a", "b"], "c was tried, and gained nothing"
    assert "x.log1p() + kept" in source_of(found)
    assert strategy.base([an_evaluation(first, speedup=0.9)]) is None


def test_without_columns_the_only_such_expression_of_a_line_is_taken(tmp_path):
    text = TEXT.replace("scaled.sin() + kept", "scaled.sin() + kept.sin() + x.cos()")
    problem, recording = problem_and_recording(tmp_path, text)
    operations = tuple(
        msgspec.structs.replace(
            one, span=one.span and msgspec.structs.replace(one.span, column=None, last_column=None)
        )
        for one in recording.operations
    )
    old = msgspec.structs.replace(recording, operations=operations)
    strategy = RecordedRewrites(rules=(renamed("cos", "x.tan()", "a"), renamed("sin", "x", "b")))
    (found,) = strategy.propose_recorded(problem, old, (), 9)
    assert source_of(found) == text.replace("x.cos()", "x.tan()").replace("Model", "ModelNew", 0)
