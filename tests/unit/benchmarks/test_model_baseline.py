"""The zero line of a model: its tasks, its server's batches, its rates, what is asked and read."""

from __future__ import annotations

import argparse
import contextlib
import json
import math

import pytest

from cudal1_ci.propose.llm.servers import Answer
from cudal1_ci.records import Device
from cudal1_ci.records.archive import Archive
from tests.replay_server import replay_server
from tests.unit.benchmarks.test_published import committed

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 0 * x


def get_inputs():
    return [torch.rand(8, 8)]


def get_init_inputs():
    return []
"""


def answer(expression: str) -> str:
    return f"""## Performance analysis
Two passes.

## Algorithm design
One.

## Code
```python
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {expression}
```
"""


@pytest.fixture
def tasks(benchmark_module):
    return benchmark_module("baseline_tasks")


@pytest.fixture
def server(benchmark_module):
    return benchmark_module("batch_server")


@pytest.fixture
def tables(benchmark_module):
    return benchmark_module("baseline_table")


@pytest.fixture
def baseline(benchmark_module):
    return benchmark_module("model_baseline")


# --- tasks ---------------------------------------------------------------------------------------


def test_there_are_twenty_different_tasks_of_each_level_in_turn(tasks):
    names = tasks.tasks()
    assert len(set(names)) == 40
    assert [name[:2] for name in names] == ["1/", "2/"] * 20
    assert not {"2/23", "2/66", "2/80", "2/83"} & set(names)


def test_a_few_tasks_are_the_first_or_those_that_are_named(tasks):
    assert tasks.tasks(2) == tasks.tasks()[:2]
    assert tasks.tasks(only="2/15,1/40") == ["1/40", "2/15"]
    with pytest.raises(SystemExit, match="3/1"):
        tasks.tasks(only="3/1")


def test_references_are_read_from_a_folder_a_clone_and_a_packed_file(tasks, tmp_path):
    folder = tmp_path / "clone"
    for name in ("level1/12_Matmul_with_diagonal_matrices_", "level2/6_Conv3d", "level1/1_A"):
        path = folder / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    wanted = ["1/12", "2/6"]
    expected = {"1/12": "level1/12_Matmul_with_diagonal_matrices_", "2/6": "level2/6_Conv3d"}
    assert tasks.read(folder, wanted) == expected
    assert tasks.commit_of(folder) is None
    git, commit = committed(folder, {})
    assert tasks.read(git, wanted) == expected
    assert tasks.commit_of(git) == commit
    packed = tmp_path / "packed.json"
    packed.write_text(json.dumps({"commit": "c", "references": {**expected, "1/1": "more"}}))
    assert tasks.read(packed, wanted) == expected
    assert tasks.commit_of(packed) == "c"
    with pytest.raises(SystemExit, match="has no task 2/15"):
        tasks.read(folder, ["1/12", "2/15"])


# --- batches -------------------------------------------------------------------------------------


def rows(server, *lengths: int, temperature: float = 0.8) -> list:
    return [
        server.Row(
            prompt=[7] * length, temperature=temperature, top_p=1.0, seed=place, max_tokens=9
        )
        for place, length in enumerate(lengths)
    ]


def test_a_batch_holds_the_oldest_request_and_those_as_long_as_it(server):
    waiting = rows(server, 50, 10, 12, 52, 11, 51)
    batch = server.next_batch(waiting, 3)
    assert [len(row.prompt) for row in batch] == [50, 51, 52]
    left = [row for row in waiting if row not in batch]
    assert [len(row.prompt) for row in server.next_batch(left, 2)] == [10, 11]


def test_greedy_rows_and_sampled_ones_are_generated_apart(server):
    waiting = [*rows(server, 5, temperature=0.0), *rows(server, 4, 3), *rows(server, 6)]
    assert server.next_batch(waiting, 9) == waiting[:1]
    assert len(server.next_batch(waiting[1:], 9)) == 3


def test_nobody_waits_for_ever(server):
    waiting, turns = rows(server, *range(1, 30)), 0
    while waiting:
        batch = server.next_batch(waiting, 4)
        assert waiting[0] in batch
        assert len(batch) <= 4
        waiting = [row for row in waiting if row not in batch]
        turns += 1
    assert turns <= 10


def test_prompts_are_filled_on_the_left(server):
    ids, mask = server.padded([[1, 2, 3], [4]], pad=0)
    assert ids == [[1, 2, 3], [0, 0, 4]]
    assert mask == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    ("tokens", "most", "kept", "reason"),
    [
        ([5, 6, 2, 0, 0], 9, [5, 6], "stop"),
        ([5, 6, 7], 3, [5, 6, 7], "length"),
        ([5, 6, 7, 0, 0], 2, [5, 6], "length"),
        ([2, 0], 9, [], "stop"),
    ],
)
def test_an_answer_ends_at_its_end_or_where_it_is_cut_off(server, tokens, most, kept, reason):
    assert server.ended(tokens, frozenset({2}), most) == (kept, reason)


def test_words_end_a_text_at_the_first_of_them(server):
    assert server.until("a b c", ["c", "b"]) == ("a ", True)
    assert server.until("a b c", []) == ("a b c", False)


def test_a_request_is_rows_with_seeds_of_their_own(server):
    made = server.rows_of({"n": 3, "seed": 7, "temperature": 0, "stop": "x"}, [1])
    assert [row.seed for row in made] == [7, 8, 9]
    assert {row.temperature for row in made} == {0.0}
    assert {row.stop for row in made} == {("x",)}
    assert server.rows_of({}, [1])[0].temperature == 1.0
    assert server.rows_of({"max_completion_tokens": 5}, [1])[0].max_tokens == 5


@pytest.mark.parametrize(
    "request_", [{"temperature": "hot"}, {"n": 0}, {"top_p": 0}, {"top_p": 2}, {"max_tokens": -1}]
)
def test_a_request_that_means_nothing_is_refused(server, request_):
    with pytest.raises(server.BadRequest):
        server.rows_of(request_, [1])


def test_a_reply_counts_the_tokens_of_all_rows(server):
    made = rows(server, 4, 4)
    for row in made:
        row.text, row.num_tokens, row.finish_reason = "t", 5, "length"
    document = server.document_of(made, "m")
    assert [one["finish_reason"] for one in document["choices"]] == ["length", "length"]
    assert document["usage"] == {"prompt_tokens": 4, "completion_tokens": 10, "total_tokens": 14}


def test_draws_follow_the_probabilities_and_are_a_rows_own(server):
    torch = pytest.importorskip("torch")
    weights = object.__new__(server.Weights)
    weights.torch, weights.device = torch, "cpu"
    some = rows(server, *[1] * 4000, temperature=2.0)
    logits = torch.tensor([[0.0, 2.0, -2.0]])
    drawn = weights.drawing(some)(None, logits.repeat(4000, 1)).argmax(-1)
    shares = torch.bincount(drawn, minlength=3) / 4000
    expected = torch.softmax(logits[0] / 2.0, -1)
    assert torch.allclose(shares, expected, atol=0.03)
    alone = weights.drawing(some[17:18])(None, logits.clone()).argmax(-1)
    assert alone[0] == drawn[17]


def test_top_p_leaves_the_likeliest_alone(server):
    torch = pytest.importorskip("torch")
    weights = object.__new__(server.Weights)
    weights.torch = torch
    scores = torch.log(torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]))
    left = weights.likeliest(scores, torch.tensor([0.6, 0.1])).isfinite()
    assert left.tolist() == [[False, True, True], [False, True, False]]


def test_a_prompt_that_rows_have_in_common_is_read_once_and_answers_stay(
    server, tmp_path, monkeypatch
):
    from tests.training.tiny_weights import tiny_weights

    weights = server.Weights(tiny_weights(tmp_path / "weights"), None, "cpu", "float32")
    prompts = [[6, 7, 8, 9, 10], [11, 12], [6, 7, 8, 9, 10], [11, 12], [13, 14, 15]]
    read = []
    whole = weights.model.model.forward
    monkeypatch.setattr(
        weights.model.model,
        "forward",
        lambda *args, **named: read.append(named["input_ids"].shape) or whole(*args, **named),
    )

    def answers() -> list[str]:
        asked = [
            server.Row(prompt=prompt, temperature=0.8, top_p=1.0, seed=seed, max_tokens=12)
            for seed, prompt in enumerate(prompts)
        ]
        weights.generate(asked)
        return [row.text for row in asked]

    shared = answers()
    assert [tuple(shape) for shape in read[:2]] == [(3, 4), (5, 1)]
    monkeypatch.setattr(weights, "read", lambda *_: None)
    assert answers() == shared
    weights.attention = contextlib.nullcontext
    assert answers() == shared
    assert len(set(shared)) == len(shared)


# --- rates ---------------------------------------------------------------------------------------


def test_wilsons_interval_is_that_of_the_tables(tables):
    found = tables.wilson(5, 20)
    assert (round(found.low, 3), round(found.high, 3)) == (0.112, 0.469)
    assert tables.wilson(0, 40).low == 0
    assert tables.wilson(0, 40).high == pytest.approx(0.0876, abs=1e-3)
    assert tables.wilson(40, 40).high == 1
    assert tables.wilson(0, 0)[2:] == (0.0, 1.0)


def test_answers_that_hang_together_say_less_than_answers_that_do_not(tables):
    together = {str(n): [n % 2 == 0] * 8 for n in range(40)}
    apart = {str(n): [place % 2 == 0 for place in range(8)] for n in range(40)}
    apart["0"], apart["1"] = [True, *[False] * 7], [True] * 7 + [False]
    wide, narrow = tables.clustered(together), tables.clustered(apart)
    assert (wide.hits, wide.total) == (narrow.hits, narrow.total) == (160, 320)
    # The deviation of a mean of 40 that are 0 or 1.
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(40), rel=0.15)
    assert narrow.high - narrow.low < 0.1
    assert tables.clustered(together) == wide


def test_a_rate_of_nothing_is_not_certain(tables):
    found = tables.clustered({str(n): [False] * 8 for n in range(40)})
    assert (found.hits, found.total, found.low) == (0, 320, 0.0)
    assert found.high == tables.wilson(0, 40).high


def test_one_answer_a_task_has_wilsons_interval(tables):
    found = tables.clustered({str(n): [n < 10] for n in range(40)})
    assert found == tables.wilson(10, 40)


def an_answer(task: str, candidate: str | None, **more: object) -> dict[str, object]:
    return {
        "setting": "none",
        "sampling": "sampled",
        "temperature": 0.8,
        "task": task,
        "kind": "program" if candidate else "no_code",
        "has_code": candidate is not None,
        "candidate": candidate,
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "num_known": 1,
        **more,
    }


def a_program(status: str, low: float | None = None, **more: object) -> dict[str, object]:
    times = {"speedup": low and low + 0.1, "speedup_low": low, "speedup_high": low and low + 0.2}
    return {"task": "1/1", "by": "model", "status": status, "rule": None, **times, **more}


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        (None, 2),
        (a_program("harness_error"), 2),
        (a_program("inconclusive"), 2),
        (a_program("compile_error"), 2),
        (a_program("incorrect_values"), 3),
        (a_program("reward_hack"), 3),
        (a_program("passed"), 4),
        (a_program("passed", 0.98), 4),
        (a_program("passed", 1.01), 5),
    ],
)
def test_an_answer_goes_through_its_gates_in_order(tables, program, passes):
    assert sum(tables.gates(an_answer("1/1", "a"), program)) == passes
    assert not any(tables.gates(an_answer("1/1", None), program)[:2])


def test_the_table_says_what_was_found_and_what_is_missing(tables):
    document = {
        "date": "2026-11-21T00:00:00",
        "commit": "abc",
        "kernelbench": "423217d9fda91e",
        "mode": "brief",
        "device": {"name": "NVIDIA H200", "software": {"torch": "2.11"}},
        "model": {"model": "m", "top_p": 1.0, "max_tokens": 64},
        "about_the_model": "",
        "tasks": ["1/1", "2/2", "2/3"],
        "settings": ["none", "random"],
        "num_questions": 5,
        "references": {
            "1/1": {"status": "passed"},
            "2/2": {"status": "passed"},
            "2/3": {"status": "invalid_reference"},
        },
        "programs": {
            "a": a_program("passed", 1.5),
            "b": a_program("incorrect_values", rule="values.mismatch"),
            "p": a_program("passed", 1.2, by="playbook:x"),
        },
        "answers": [
            an_answer("1/1", "a"),
            an_answer("1/1", "b"),
            an_answer("2/2", None),
            an_answer("2/2", "c", finish_reason="length"),
        ],
    }
    text = tables.table(document)
    assert "| none | 0.8 | 4 | 75.0% (50.0% to 100.0%) |" in text
    assert "| none | 0.8 | 4 | 2 of 2, 34% to 100% | 2 of 2, 34% to 100% | 1 of 2," in text
    assert "1/1: 1.60 (1.50 to 1.70)" in text
    assert "values.mismatch 1" in text
    assert "no_code 1" in text
    assert "2/3 invalid_reference" in text
    assert "NOT FINISHED: 1 questions without an answer, 1 programs without a verdict" in text
    assert "NOT FINISHED: nothing was answered of random." in text
    assert "1 judged, 1 correct, 1 tasks faster" in text


# --- asking and reading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "has_code"),
    [
        (answer("x.clamp(min=0)"), "program", True),
        (answer("torch.relu(x) + 0 * x").replace("torch.nn.M", "nn.M"), "unchanged", True),
        ("Use a fused kernel.", "no_code", False),
        (answer("x.clamp(min=0").replace("## Code", ""), "syntax", False),
        (answer("x").replace("def forward", "def other"), "no_entry", True),
    ],
)
def test_an_answer_is_read_as_the_product_reads_it(baseline, text, kind, has_code):
    problem = baseline.text_trials.problem_of(REFERENCE)
    found = baseline.read(problem, Answer(text=text, finish_reason="stop"))
    assert (found.kind, found.has_code) == (kind, has_code)
    assert (found.candidate is not None) == (kind == "program")


def test_an_answer_without_text_has_the_name_of_its_failure(baseline):
    problem = baseline.text_trials.problem_of(REFERENCE)
    assert baseline.read(problem, Answer(failure="degenerate")).kind == "degenerate"


@pytest.fixture
def begun(baseline, tmp_path):
    """A run of one task, whose reference was judged."""
    options = argparse.Namespace(
        name=None,
        temperature=0.8,
        max_tokens=256,
        concurrent=4,
        settings="none,random,bucket",
        samples=3,
        seed=0,
        limit=60.0,
    )
    problem = baseline.text_trials.problem_of(REFERENCE)
    device = Device(kind="cpu", name="none", num_threads=1)
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        archive.note(baseline.DEVICE, baseline.DEVICE, device)
        archive.note(baseline.REFERENCE, "1/12", {"status": "passed"})
        yield baseline.Run(options, {"1/12": problem}, archive)


def test_exemplars_are_asked_for_once_the_others_are_judged(baseline, begun):
    texts = [answer("x.clamp(min=0)"), answer("x.clamp(min = 0)"), "prose"]
    with replay_server(texts) as server:
        begun.options.url = server.url
        baseline.generate(begun)
        assert len(server.requests) == 4
        assert {one["temperature"] for one in server.requests} == {0.0, 0.8}
        baseline.generate(begun)  # nothing is judged yet, and nothing is asked again
        assert len(server.requests) == 4
        kinds = sorted(reading.kind for _, _, reading in begun.readings())
        assert kinds == ["no_code", "no_code", "program", "program"]
        programs = {reading.candidate.id for *_, reading in begun.readings() if reading.candidate}
        assert len(programs) == 1
        for one in programs:
            begun.archive.note(baseline.TRIAL, one, {"status": "incorrect_values"})
        baseline.generate(begun)
        # Of the original alone both settings show the same, so it is asked for once.
        assert len(server.requests) == 8
        asked = begun.asked()
        assert [one.setting for one in asked] == ["none"] * 4 + ["random"] * 4 + ["bucket"] * 4
        assert {len(one.question.exemplar_ids) for one in asked[4:]} == {1}
        prompt = server.requests[-1]["messages"][1]["content"]
        assert "speedup 1.00" in prompt
        assert "Make `Model` faster" in prompt


@pytest.mark.parametrize("is_asked", [False, True])
def test_what_has_no_verdict_is_judged_again(baseline, begun, monkeypatch, is_asked):
    """Not a reference once questions were fixed: its task would be asked in some settings."""
    begun.problems["1/40"] = begun.problems["1/12"]
    begun.archive.note(baseline.REFERENCE, "1/40", {"status": "inconclusive"})
    if is_asked:
        begun.options.settings = "none"
        with replay_server([answer("x.clamp(min=0)")]) as server:
            begun.options.url = server.url
            baseline.generate(begun)
        for *_, reading in begun.readings():
            begun.archive.note(baseline.TRIAL, reading.candidate.id, {"status": "inconclusive"})
    works = []
    monkeypatch.setattr(baseline, "judge_all", lambda found, *_: works.extend(found))
    others = {"again": True, "device": "cpu", "mode": "brief", "trial_limit": 9.0, "gpus": ""}
    for name, value in {**others, "judges": 1}.items():
        setattr(begun.options, name, value)
    baseline.judge(begun)
    assert {one.task for one in works} == ({"1/12"} if is_asked else {"1/40"})


def test_a_run_goes_on_behind_another_port(baseline, begun):
    begun.options.settings = "none"
    with replay_server(["first"]) as server:
        begun.options.url = server.url
        baseline.generate(begun)
    with replay_server(["second"]) as server:
        begun.options.url = server.url
        baseline.generate(begun)
        assert not server.requests
    assert [text.text for _, text, _ in begun.readings()] == ["first"] * 4


def test_answers_of_another_model_are_not_mixed_in(baseline, begun):
    with replay_server(["prose"]) as server:
        begun.options.url = server.url
        baseline.generate(begun)
    with replay_server(["prose"], models=["other"]) as server:
        begun.options.url = server.url
        with pytest.raises(SystemExit, match="other"):
            baseline.generate(begun)


def test_nothing_is_asked_before_the_references_are_known(baseline, begun):
    begun.problems["2/6"] = begun.problems["1/12"]
    with pytest.raises(SystemExit, match="--stage judge first"):
        baseline.generate(begun)


def test_an_archive_is_not_gone_on_with_unasked(baseline, tmp_path):
    options = argparse.Namespace(archive=None, output=tmp_path / "r.json", append=False)
    baseline.opened_archive(options).close()
    with pytest.raises(SystemExit, match="--append"):
        baseline.opened_archive(options)
    options.append = True
    baseline.opened_archive(options).close()


def test_a_task_is_shared_out_in_pieces(benchmark_module):
    judges = benchmark_module("baseline_judges")
    most = judges.MOST_CANDIDATES
    pieces = list(judges.shares("1/1", None, list(range(most + 1))))
    assert [len(one.candidates) for one in pieces] == [most, 1]
    assert len(list(judges.shares("1/1", None, []))) == 1
