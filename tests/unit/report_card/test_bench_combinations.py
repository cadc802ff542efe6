"""What `best` proposes by itself: which finds are put together, in what order, what they count."""

from __future__ import annotations

import time

import msgspec
import pytest

from cudal1_ci.records import Candidate, Kernel, TextProgram
from cudal1_ci.report_card.combinations import rounds
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.page import render_page
from cudal1_ci.report_card.run import run
from cudal1_ci.report_card.worth import worth
from cudal1_ci.report_card.wrapped import WRAPPERS
from cudal1_ci.stats import speedups
from tests.fakes import FakeSession, a_measurement, a_problem, an_evaluation
from tests.unit.report_card.rig import Judge, a_bench, a_task, found, told

PROBLEM = a_problem()
REWRITTEN = "class Model: ... # rewritten"


def judged(proposer, status="passed", speedup=1.0, source="class Model: pass", entry="Model"):
    techniques = WRAPPERS[proposer].techniques if proposer in WRAPPERS else ("algebra",)
    program = TextProgram(source=source, entry=entry)
    candidate = Candidate(
        problem_id=PROBLEM.id, program=program, proposer=proposer, techniques=techniques
    )
    return an_evaluation(candidate, status, speedup)


def wrapped(**worths):
    """By column a speedup, or a status that is no pass."""
    found = {}
    for name, worth_of in worths.items():
        name = name.replace("_", "-")
        status, speedup = (worth_of, 1.0) if isinstance(worth_of, str) else ("passed", worth_of)
        found[name] = [judged(name, status, speedup, source=name)]
    return found


def second(columns, problem=PROBLEM):
    """Of the second round, by what was found before."""
    return list(rounds(problem, columns, "cpu"))[1]


def proposers(columns):
    return [one.proposer for one in second(columns)]


def test_rewrites_that_gained_are_wrapped_the_most_promising_first():
    columns = {
        "eager": [judged("eager")],
        **wrapped(compile=1.1, cuda_graph=2.0),
        "playbook": [
            judged("playbook:silu", speedup=1.2, source="silu"),
            judged("playbook:mish", speedup=0.9, source="mish"),
            judged("playbook:sdpa", "incorrect_values", source="sdpa"),
            judged("playbook:silu+linear", speedup=1.5, source="both"),
        ],
    }
    first = second(columns)[0]
    assert proposers(columns) == [
        "best:playbook:silu+linear+cuda-graph",
        "best:playbook:silu+linear+compile",
        "best:playbook:silu+cuda-graph",
        "best:playbook:silu+compile",
    ]
    assert first.program.entry == "ModelNew"
    assert first.program.source.startswith("both")
    assert "CUDAGraph" in first.program.source
    assert first.techniques == ("algebra", "CUDA graph")


def test_a_rewrite_that_is_no_gain_beyond_doubt_by_itself_is_wrapped():
    """What it takes away is small beside the launches that a graph takes away."""
    doubtful = msgspec.structs.replace(
        judged("playbook:silu"), measurements=(a_measurement(1.1, spread=0.5),)
    )
    assert speedups.score(doubtful) < 1 < speedups.estimate(doubtful)
    assert speedups.best([doubtful], PROBLEM.workloads) is None
    columns = {**wrapped(cuda_graph=2.0), "playbook": [doubtful]}
    assert proposers(columns) == ["best:playbook:silu+cuda-graph"]


@pytest.mark.parametrize(
    ("own", "is_wrapped"), [((), True), ((False, True), True), ((False,), False)]
)
def test_a_program_whose_kernels_do_not_run_is_not_wrapped(own, is_wrapped):
    kernels = tuple(Kernel(name="k", num_launches=1, device_us=1.0, is_own=one) for one in own)
    rewrite = msgspec.structs.replace(judged("playbook:silu", speedup=1.5), kernels=kernels)
    columns = {**wrapped(cuda_graph=2.0), "playbook": [rewrite]}
    assert proposers(columns) == ["best:playbook:silu+cuda-graph"] * is_wrapped


def test_what_a_model_wrote_is_wrapped_as_a_class_of_another_name():
    text = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return F.silu(x)\n"
    columns = {
        **wrapped(cuda_graph=2.0),
        "playbook": [judged("playbook:silu", speedup=1.2, source="silu")],
        "contrastive": [
            judged("model:coder", speedup=1.5, source=text, entry="ModelNew"),
            judged("model:coder", speedup=1.6, source="def ModelNew(x: ", entry="ModelNew"),
        ],
    }
    first, other = second(columns)
    assert first.proposer == "best:model:coder+cuda-graph"
    assert first.program.source.startswith(text.replace("ModelNew", "Written"))
    assert first.program.source.count("class ModelNew(Written):") == 1
    assert other.proposer == "best:playbook:silu+cuda-graph"


def test_what_is_slower_is_left_out_and_what_failed_comes_last():
    columns = {
        **wrapped(compile="runtime_error", compile_reduce_overhead=0.5, cuda_graph=1.0),
        "playbook": [judged("playbook:silu", speedup=1.2)],
    }
    assert proposers(columns) == [
        "best:playbook:silu+cuda-graph",
        "best:playbook:silu+compile",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        wrapped(compile=2.0),
        {**wrapped(compile=2.0), "playbook": []},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", speedup=1.03)]},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", "timeout")]},
        {"playbook": [judged("playbook:silu", speedup=3.0)]},
        {"cuda-graph": [], "playbook": [judged("playbook:silu", speedup=3.0)]},
        {**wrapped(compile=2.0), "published": [judged("published:h100", speedup=3.0)]},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:x", speedup=3.0, entry="Other")]},
    ],
    ids=[
        "nothing judged",
        "no rewrites asked for",
        "no rewrite matched",
        "no rewrite was faster",
        "no rewrite passed",
        "no wrapper asked for",
        "no wrapper could be made",
        "only others were faster",
        "another class",
    ],
)
def test_where_there_is_nothing_to_put_together_nothing_is_proposed(columns):
    assert list(rounds(PROBLEM, columns, "cpu")) == [[], []]


def test_what_was_judged_is_not_proposed_again():
    columns = {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", speedup=1.5)]}
    (made,) = second(columns)
    columns["best"] = [an_evaluation(made)]
    assert list(rounds(PROBLEM, columns, "cpu")) == [[], []]


LAID = ["best:channels-last", "best:cudnn-benchmark", "best:channels-last+cudnn-benchmark"]
CONVOLUTIONS = a_problem("class Model:\n    conv = nn.Conv2d(3, 4, 3)\n")


def on_a_gpu(columns, problem=CONVOLUTIONS):
    """Proposers of both rounds, all of the first with the answers that are given."""
    found = {**columns, "best": []}
    turn = rounds(problem, found, "cuda")
    names = [[one.proposer for one in next(turn)]]
    answers = {
        "best:compile+cuda-graph": 3.0,
        "best:channels-last": 1.5,
        "best:cudnn-benchmark": 0.9,
        "best:channels-last+cudnn-benchmark": 0.8,
        "best:compile-as-laid-out": 2.5,
        "best:compile-as-laid-out+cuda-graph": 2.5,
    }
    for name in names[0]:
        found["best"].append(judged(name, speedup=answers[name], source=name))
    return [*names, [one.proposer for one in next(turn)]]


def test_on_a_gpu_the_reference_is_wrapped_in_ways_that_are_no_column():
    columns = {
        **wrapped(compile=0.7, cuda_graph=2.0),
        "playbook": [judged("playbook:silu", speedup=1.2)],
    }
    assert on_a_gpu(columns) == [
        ["best:compile+cuda-graph", *LAID],
        [
            "best:channels-last+compile+cuda-graph",
            "best:channels-last+cuda-graph",
            "best:playbook:silu+compile+cuda-graph",
            "best:playbook:silu+cuda-graph",
        ],
    ]
    assert on_a_gpu(columns, PROBLEM)[0] == ["best:compile+cuda-graph"], "no images"
    assert list(rounds(CONVOLUTIONS, {}, "cpu")) == [[], []]


@pytest.mark.parametrize("refused", ["precision", "incorrect_values"])
def test_convolutions_that_are_less_precise_compiled_are_compiled_as_they_are_laid_out(refused):
    """In a graph where that gains by itself."""
    columns = wrapped(compile=refused, cuda_graph=2.0)
    names = ["best:compile-as-laid-out+cuda-graph", *LAID]
    first, then = on_a_gpu(columns)
    assert first == names
    assert then[0] == "best:channels-last+compile-as-laid-out+cuda-graph"
    assert on_a_gpu(columns, PROBLEM)[0] == [], "no images"
    assert names[0] not in on_a_gpu(wrapped(compile="timeout", cuda_graph=2.0))[0]
    for graph in (0.5, "runtime_error"):
        first, _ = on_a_gpu(wrapped(compile=refused, cuda_graph=graph))
        assert first == ["best:compile-as-laid-out", *names[1:]]


def test_an_order_that_the_playbook_found_less_precise_is_not_tried_again():
    refused = judged("playbook:channels_last", "precision")
    assert on_a_gpu({"playbook": [refused]})[0] == ["best:cudnn-benchmark"]
    wrong = judged("playbook:channels_last", "incorrect_values")
    other = judged("playbook:fp32_tensor_cores", "precision")
    assert on_a_gpu({"playbook": [wrong, other]})[0] == LAID


@pytest.mark.parametrize(
    "columns",
    [
        {},
        wrapped(compile=1.5),
        wrapped(cuda_graph=1.5),
        wrapped(compile=1.5, cuda_graph=0.5),
        wrapped(compile=1.5, cuda_graph="runtime_error"),
        wrapped(compile="timeout", cuda_graph=1.5),
        {**wrapped(compile=1.5), "cuda-graph": []},
    ],
    ids=["nothing", "one", "the other", "slower", "no graph", "not compiled", "not made"],
)
def test_both_are_tried_together_where_each_passed(columns):
    assert on_a_gpu(columns, PROBLEM)[0] == []


@pytest.mark.parametrize(
    ("layer", "name", "base"),
    [
        ("channels-last", "ChannelsLast", "Model"),
        ("cudnn-benchmark", "Tuned", "Model"),
        ("channels-last+cudnn-benchmark", "TunedChannelsLast", "ChannelsLast"),
    ],
)
def test_a_layer_that_gained_is_wrapped_below_a_name_of_its_own(layer, name, base):
    found = wrapped(cuda_graph=2.0)
    found["best"] = [judged(f"best:{layer}", speedup=1.5)]
    (made,) = second(found, CONVOLUTIONS)
    assert made.proposer == f"best:{layer}+cuda-graph"
    assert f"class {name}({base})" in made.program.source
    assert f"class ModelNew({name})" in made.program.source
    assert f"cuda_graphed({name}.forward)" in made.program.source


class Model(FakeSession):
    """Knows rewrites and wrappers by a word in the text, their gains multiply."""

    def evaluate(self, problem, candidate):
        source = candidate.program.source
        self.asked.append(source)
        speedup = (1.5 if "rewritten" in source else 1.0) * (2.0 if "compile" in source else 1.0)
        return an_evaluation(candidate, "passed", speedup, [w.name for w in problem.workloads])


PROPOSED = {"compile": ["torch.compile"], "playbook": [REWRITTEN]}


@pytest.fixture
def rewriting(monkeypatch):
    """The rig's proposers answer `ModelNew`; the playbook keeps the reference's class."""
    monkeypatch.setattr(
        "tests.unit.report_card.rig.a_candidate",
        lambda problem, source: Candidate(
            problem_id=problem.id,
            program=TextProgram(source=source, entry="Model"),
            proposer=f"playbook:{source[-9:]}",
        ),
    )


def test_a_combination_is_a_trial_of_best_and_what_it_is_worth(tmp_path, rewriting):
    with a_bench(tmp_path, Model({}), PROPOSED) as bench:
        document = run(found(a_task()), bench)
    (task,) = document.tasks
    assert [result.solver for result in task.results] == ["compile", "playbook", "best"]
    (trial,) = task.results[-1].trials
    assert trial.candidate.proposer == "best:playbook:rewritten+compile"
    assert "torch.compile(" in trial.code
    best = worth(task, "best")
    assert (best.solver, best.trial) == ("best", trial)
    assert best.speedup == pytest.approx(3.0, rel=0.02)
    assert worth(task, "playbook").speedup == pytest.approx(1.5, rel=0.02)
    assert {row.solver: row.num_given for row in document.card}["best"] == 1
    page = render_page(document)
    assert '<span class="place">best:playbook:rewritten+compile</span>' in page
    assert 'id="m0t0-best"' in page


def test_a_kill_in_the_turn_of_best_leaves_its_task_out_until_it_goes_on(tmp_path, rewriting):
    class Killed(Model, Judge):
        def evaluate(self, problem, candidate):
            if self.num_answers == self.stops_after:
                raise KeyboardInterrupt
            self.num_answers += 1
            return Model.evaluate(self, problem, candidate)

    began = time.time()
    with a_bench(tmp_path, Killed({}, stops_after=2), PROPOSED, since=began) as bench:
        cut = run(found(a_task()), bench)
    assert (cut.ended, cut.tasks[0].standing) == ("interrupted", "missing")
    assert [result.solver for result in cut.tasks[0].results] == ["compile", "playbook"]
    again = Killed({})
    with a_bench(tmp_path, again, PROPOSED, since=began) as bench:
        whole = run(found(a_task()), bench)
    assert whole.tasks[0].standing == "judged"
    assert again.num_answers == 1, "the combination alone"
    assert merge([cut]).tasks[0].standing == "missing"
    assert merge([cut]).tasks[0].reason == "no result of best"
    assert merge([cut, whole]).tasks[0].standing == "judged"
    assert worth(merge([whole, cut]).tasks[0], "best").solver == "best"


def test_a_run_from_before_best_had_trials_stands_as_it_was_judged():
    old = told(a_task(), {"compile": 1.5, "playbook": 2.0})
    assert worth(old, "best").solver == "playbook"


def test_combinations_that_failed_leave_the_best_column(tmp_path):
    task = told(a_task(), {"compile": 1.5, "playbook": 2.0, "best": "incorrect_values"})
    assert worth(task, "best").solver == "playbook"
    gain = msgspec.structs.replace(task, results=(task.results[2],))
    assert worth(gain, "best").solver == "reference"
