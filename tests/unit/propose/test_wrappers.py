"""Which wrappers are proposed: of the reference, of what was faster, in what order."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.propose.apply import apply
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.wrappers.strategy import MAX_COMBINATIONS, MOST_TRACED, Wrappers
from cudal1_ci.propose.wrappers.table import WRAPPERS
from cudal1_ci.records import (
    Call,
    Candidate,
    Edit,
    Finding,
    Generation,
    Kernel,
    Problem,
    TextProgram,
    Verdict,
    Workload,
)
from cudal1_ci.records.recording import RecordedOperation, Recording
from cudal1_ci.stats import speedups
from tests.fakes import a_measurement, a_target, an_evaluation
from tests.unit.propose.fake_rewrites import FAKES

SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x)
        return (x * torch.sigmoid(x)).clone() + 1
"""
BY_NAME = {one.name: one for one in (*FAKES, *WRAPPERS)}
GRAPHS_OF_BOTH = "training_graph+cuda_graph"
LAID = ["channels_last_inside", "cudnn_benchmark", "channels_last_inside+cudnn_benchmark"]
GENERATION = Generation(model="a-model", temperature=0.8, max_tokens=9, prompt_digest="0")


def a_text(source=SOURCE, modes=("infer",)):
    workloads = tuple(
        Workload(name=f"in {mode}", provenance="declared", call=Call(), mode=mode) for mode in modes
    )
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=workloads)


PLAIN = a_text()
BOTH = a_text(modes=("train", "infer"))
IMAGES = a_text(SOURCE.replace("nn.Linear(4, 4)", "nn.Conv2d(3, 4, 3)"))
ON_A_CPU = Wrappers(PlaybookConfig(compile=True), kind="cpu")
ON_A_GPU = Wrappers(kind="cuda")


def found_of(names, worth, problem=PLAIN):
    """What came of these operators in the reference: a speedup, or a status that is no pass."""
    candidate = apply(problem, None, [BY_NAME[name] for name in names.split("+")])
    assert candidate.proposer == f"playbook:{names}"
    if isinstance(worth, str):
        return an_evaluation(candidate, worth)
    return an_evaluation(candidate, speedup=worth)


def found(problem=PLAIN, **worths):
    return [found_of(names.replace("_AND_", "+"), one, problem) for names, one in worths.items()]


def written(speedup, source=SOURCE, problem=PLAIN):
    """What a model wrote."""
    program = TextProgram(source=source.replace("Model(", "ModelNew("), entry="ModelNew")
    candidate = Candidate(
        problem_id=problem.id, program=program, proposer="model:coder", generation=GENERATION
    )
    return an_evaluation(candidate, speedup=speedup)


def proposed(wrappers, evaluations=(), problem=PLAIN, n=12):
    """Names of what is proposed, without the strategy's own prefix."""
    candidates = wrappers.propose(problem, evaluations, n)
    return [one.proposer.removeprefix("playbook:") for one in candidates]


def test_the_first_round_is_the_reference_in_every_wrapper_that_suits_the_device(monkeypatch):
    assert proposed(ON_A_CPU) == ["compile"]
    assert proposed(ON_A_CPU, problem=IMAGES) == ["compile"]
    assert proposed(ON_A_GPU) == ["compile", "cuda_graph"]
    assert proposed(ON_A_GPU, problem=IMAGES) == ["compile", "cuda_graph", *LAID]
    assert proposed(ON_A_GPU, problem=IMAGES, n=2) == ["compile", "cuda_graph"]


def test_on_a_cpu_without_a_compiler_nothing_is_proposed_unless_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert proposed(Wrappers(kind="cpu"), problem=IMAGES) == []
    assert proposed(ON_A_CPU) == ["compile"]
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/g++" if name == "g++" else None)
    assert proposed(Wrappers(kind="cpu")) == ["compile"]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"compile": False}, ["cuda_graph"]),
        ({"cuda_graph": False}, ["compile"]),
        ({"skip": ("compilation",)}, ["cuda_graph"]),
        ({"skip": ("cuda_graph",)}, ["compile"]),
        ({"max_autotune": True}, ["compile", "compile_max_autotune", "cuda_graph"]),
    ],
)
def test_wrappers_can_be_left_out_and_slow_ones_are_proposed_when_they_are_asked_for(config, names):
    assert proposed(Wrappers(PlaybookConfig(**config), kind="cuda")) == names


def test_a_column_of_one_wrapper_is_that_wrapper_and_no_more():
    for name in ("compile_reduce_overhead", "compile_max_autotune"):
        alone = Wrappers(kind="cuda", only=[name], combines=False)
        assert proposed(alone, problem=IMAGES) == [name]
        evaluations = [found_of(name, 2.0), found_of("silu", 2.0)]
        assert proposed(alone, evaluations) == []
    assert proposed(Wrappers(kind="cpu", only=["cuda_graph"], combines=False)) == []


@pytest.mark.parametrize("graph", [1.0, 2.0])
def test_compiled_and_recorded_are_tried_together_where_each_passed(graph):
    """A compiled program may be slow by what it checks before each call."""
    evaluations = found(compile=0.7, cuda_graph=graph)
    assert proposed(ON_A_GPU, evaluations) == ["compile+cuda_graph"]


@pytest.mark.parametrize(
    "worths",
    [
        {"compile": 1.5},
        {"cuda_graph": 1.5},
        {"compile": 1.5, "cuda_graph": 0.5},
        {"compile": 1.5, "cuda_graph": "runtime_error"},
        {"compile": "timeout", "cuda_graph": 1.5},
    ],
)
def test_they_are_not_where_one_of_them_did_not(worths):
    assert "compile+cuda_graph" not in proposed(ON_A_GPU, found(**worths))


@pytest.mark.parametrize(
    "refused", ["precision", pytest.param("incorrect_values", marks=pytest.mark.slow)]
)
def test_what_is_less_precise_compiled_is_compiled_as_it_is_laid_out(refused):
    """In a graph where that gains by itself."""
    layouts = {"channels_last_inside": 1.0, "cudnn_benchmark": 1.0}

    def names(**worths):
        evaluations = found(IMAGES, **layouts, **worths)
        return [one for one in proposed(ON_A_GPU, evaluations, IMAGES) if one not in LAID]

    assert names(compile=refused, cuda_graph=2.0) == ["compile_as_laid_out+cuda_graph"]
    assert names(compile=refused, cuda_graph=0.5) == ["compile_as_laid_out"]
    assert names(compile=refused, cuda_graph="runtime_error") == ["compile_as_laid_out"]
    assert names(compile="timeout", cuda_graph=2.0) == []
    assert names(compile=1.5, cuda_graph=2.0) == ["compile+cuda_graph"]


def test_what_is_wrong_in_training_alone_is_compiled_for_inference():
    """At once where the layout is no reason, and else after that was tried."""

    def names(rule, **worths):
        tried = {"training_graph_AND_cuda_graph": "runtime_error"} | worths
        return proposed(ON_A_GPU, [wrong_compiled(rule), *found(BOTH, **tried)], BOTH)

    assert names("gradients.joined", cuda_graph=2.0) == ["compile_in_inference+cuda_graph"]
    assert names("gradients.joined", cuda_graph=1.0) == ["compile_in_inference"]
    assert names("values.mismatch", cuda_graph=1.0) == ["compile_as_laid_out"]
    refused = {"compile_as_laid_out": "incorrect_values", "cuda_graph": 1.0}
    assert names("values.mismatch", **refused) == ["compile_in_inference"]
    assert names("gradients.joined", compile_in_inference="precision", cuda_graph=1.0) == []


def wrong_compiled(rule):
    verdict = Verdict(status="incorrect_values", findings=(Finding(rule=rule, message="is wrong"),))
    return msgspec.structs.replace(found_of("compile", "runtime_error", BOTH), verdict=verdict)


def in_graphs(training, inference, names="training_graph+cuda_graph"):
    """What came of graphs of both modes: a speedup in each."""
    candidate = apply(BOTH, None, [BY_NAME[name] for name in names.split("+")])
    one = an_evaluation(candidate)
    measured = (a_measurement(training, "in train"), a_measurement(inference, "in infer"))
    return msgspec.structs.replace(one, measurements=measured)


def test_what_trains_is_recorded_for_training_too_and_for_inference_alone_if_that_gains_nothing():
    assert proposed(ON_A_GPU, problem=BOTH) == ["training_graph+cuda_graph"]
    assert proposed(ON_A_GPU, problem=a_text(modes=("train",))) == ["compile", "training_graph"]
    compiled = found_of("compile", 1.5, BOTH)
    gaining = [compiled, in_graphs(2.0, 3.0)]
    assert proposed(ON_A_GPU, gaining, BOTH) == ["compile+training_graph+cuda_graph"]
    for one in (in_graphs(1.0, 3.0), in_graphs(0.5, 3.0)):
        assert proposed(ON_A_GPU, [compiled, one], BOTH) == ["cuda_graph"]
        found_both = [compiled, one, found_of("cuda_graph", 3.0, BOTH)]
        assert proposed(ON_A_GPU, found_both, BOTH) == ["compile+cuda_graph"]


def test_what_graphs_gain_is_compiled_in_them_at_once():
    """Compiling a call that trains takes longest: alone only where graphs gain nothing."""

    def names(*evaluations):
        return proposed(ON_A_GPU, evaluations, BOTH)

    together = "compile+training_graph+cuda_graph"
    assert names(in_graphs(2.0, 3.0)) == [together]
    assert names(in_graphs(2.0, 3.0), in_graphs(3.0, 3.0, together)) == []
    assert names(in_graphs(1.0, 3.0)) == ["cuda_graph"]
    inference = found_of("cuda_graph", 3.0, BOTH)
    assert names(in_graphs(1.0, 3.0), inference) == ["compile+cuda_graph"]
    joined = found_of("compile+cuda_graph", "incorrect_values", BOTH)
    rule = Finding(rule="gradients.joined", message="is wrong")
    verdict = msgspec.structs.replace(joined.verdict, findings=(rule,))
    joined = msgspec.structs.replace(joined, verdict=verdict)
    repaired = ["compile_in_inference+cuda_graph"]
    assert names(in_graphs(1.0, 3.0), inference, joined) == repaired
    nothing = found_of("cuda_graph", 1.0, BOTH)
    assert names(in_graphs(1.0, 1.0), nothing) == ["compile"]
    failed = [found_of(one, "runtime_error", BOTH) for one in (GRAPHS_OF_BOTH, "cuda_graph")]
    assert names(*failed) == ["compile"]


def test_a_function_that_trains_is_compiled_though_no_graph_holds_it():
    function = "import torch\n\n\ndef f(x):\n    return torch.relu(x) + 1\n"
    workloads = BOTH.workloads
    problem = Problem(reference=TextProgram(source=function, entry="f"), workloads=workloads)
    assert proposed(ON_A_GPU, problem=problem) == ["compile"]


def test_a_graph_of_training_separates_gradients_that_the_compiler_joins():
    evaluations = [wrong_compiled("gradients.joined"), in_graphs(2.0, 3.0)]
    assert proposed(ON_A_GPU, evaluations, BOTH) == ["compile+training_graph+cuda_graph"]
    names = "compile+training_graph+cuda_graph"
    passed = in_graphs(3.0, 3.0, names)
    assert proposed(ON_A_GPU, [*evaluations, passed], BOTH) == []
    failed = found_of(names, "runtime_error", BOTH)
    repaired = ["compile_in_inference+training_graph+cuda_graph"]
    assert proposed(ON_A_GPU, [*evaluations, failed], BOTH) == repaired


def test_an_order_that_was_found_less_precise_is_not_tried_again():
    refused = found_of("channels_last", "precision", IMAGES)
    assert proposed(ON_A_GPU, [refused], IMAGES) == ["compile", "cuda_graph", "cudnn_benchmark"]
    wrong = found_of("channels_last", "incorrect_values", IMAGES)
    assert proposed(ON_A_GPU, [wrong], IMAGES) == ["compile", "cuda_graph", *LAID]


TOGETHER = {"compile": 1.1, "cuda_graph": 2.0, "compile_AND_cuda_graph": 0.5}


def test_what_takes_the_waits_out_is_recorded_where_the_reference_could_not_be():
    def names(graph, **worths):
        return proposed(ON_A_GPU, found(compile=1.0, cuda_graph=graph, **worths))

    assert "waits+cuda_graph" in names("runtime_error", waits=1.0)
    assert "waits+cuda_graph" not in names(1.0, waits=1.0)
    assert "waits+cuda_graph" not in names("runtime_error", waits=0.5)
    assert "waits+cuda_graph" not in names("runtime_error", waits="precision")
    assert "needless_copy+cuda_graph" not in names("runtime_error", needless_copy=1.0)


def test_graphs_that_may_hold_a_model_now_come_before_its_compilation():
    failed = found_of(GRAPHS_OF_BOTH, "runtime_error", BOTH)
    without = found_of("waits", 1.0, BOTH)
    later = ["cuda_graph", "compile"]
    assert {*later} >= {*proposed(ON_A_GPU, [failed], BOTH)}
    first, *others = proposed(ON_A_GPU, [failed, without], BOTH)
    assert first == f"waits+{GRAPHS_OF_BOTH}"
    assert {*later} >= {*others}
    held = apply(BOTH, without.candidate, [BY_NAME[name] for name in GRAPHS_OF_BOTH.split("+")])
    again = proposed(ON_A_GPU, [failed, without, an_evaluation(held, speedup=2.0)], BOTH)
    assert f"waits+{GRAPHS_OF_BOTH}" not in again


def test_rewrites_that_gained_are_wrapped_the_most_promising_first():
    evaluations = found(
        **TOGETHER,
        silu=1.2,
        needless_copy=0.9,
        silu_AND_needless_copy=1.5,
    )
    candidates = ON_A_GPU.propose(PLAIN, evaluations, 12)
    assert [one.proposer for one in candidates] == [
        "playbook:silu+needless_copy+cuda_graph",
        "playbook:silu+needless_copy+compile",
        "playbook:silu+cuda_graph",
        "playbook:silu+compile",
    ]
    first = candidates[0]
    assert first.program.entry == "Model"
    assert "F.silu" in first.program.source or "functional.silu" in first.program.source
    assert "@cuda_graphed\n    def forward" in first.program.source
    assert first.techniques == (
        BY_NAME["silu"].family,
        BY_NAME["needless_copy"].family,
        "CUDA graph",
    )
    known = [*evaluations, *map(an_evaluation, candidates)]
    assert proposed(ON_A_GPU, known) == [], "four are enough"
    assert len(candidates) == MAX_COMBINATIONS
    assert proposed(ON_A_GPU, known[:-2])[:2] == ["silu+cuda_graph", "silu+compile"]


def test_what_is_slower_is_left_out_and_what_failed_comes_last():
    evaluations = found(compile="runtime_error", cuda_graph=1.0, silu=1.2)
    assert proposed(ON_A_GPU, evaluations) == ["silu+cuda_graph", "silu+compile"]
    evaluations = found(compile="runtime_error", cuda_graph=0.5, silu=1.2)
    assert proposed(ON_A_GPU, evaluations) == ["silu+compile"]


def test_what_takes_too_long_to_compile_is_not_compiled_around_a_rewrite():
    evaluations = found(compile="timeout", cuda_graph=1.0, silu=1.2)
    assert proposed(ON_A_GPU, evaluations) == ["silu+cuda_graph"]


def test_a_call_of_many_operations_is_not_compiled_as_a_whole():
    def of(count):
        made = ON_A_GPU.propose_recorded(PLAIN, a_recording(count), (), 12)
        return [one.proposer.removeprefix("playbook:") for one in made]

    assert of(MOST_TRACED) == ["compile", "cuda_graph"]
    assert of(MOST_TRACED + 1) == ["cuda_graph"], "the compiler would unroll the loop"


def a_recording(count):
    """A call of so many operations."""
    one = RecordedOperation(
        name="add", args=(), kwargs=(), outputs=(), frame=None, span=None, scope=None
    )
    return Recording(
        values=(), frames=(), scopes=(), operations=(one,) * count, outputs=(), total_us=1.0
    )


def test_a_rewrite_that_is_no_gain_beyond_doubt_by_itself_is_wrapped():
    """What it takes away is small beside the launches that a graph takes away."""
    doubtful = msgspec.structs.replace(
        found_of("silu", 1.0), measurements=(a_measurement(1.1, spread=0.5),)
    )
    assert speedups.score(doubtful) < 1 < speedups.estimate(doubtful)
    assert speedups.best([doubtful], PLAIN.workloads) is None
    evaluations = [*found(compile="timeout", cuda_graph=2.0), doubtful]
    assert proposed(ON_A_GPU, evaluations)[0] == "silu+cuda_graph"


@pytest.mark.parametrize(
    ("own", "is_wrapped"), [((), True), ((False, True), True), ((False,), False)]
)
def test_a_program_whose_kernels_do_not_run_is_not_wrapped(own, is_wrapped):
    kernels = tuple(Kernel(name="k", num_launches=1, device_us=1.0, is_own=one) for one in own)
    rewrite = msgspec.structs.replace(found_of("silu", 1.5), kernels=kernels)
    assert proposed(ON_A_CPU, [*found(compile=2.0), rewrite]) == ["silu+compile"] * is_wrapped


@pytest.mark.parametrize(
    "worths",
    [{}, {"silu": 1.03}, {"silu": "timeout"}, {"silu": 0.5}],
    ids=["no rewrite", "none was faster", "none passed", "slower"],
)
def test_where_there_is_nothing_to_put_together_nothing_is_proposed(worths):
    assert proposed(ON_A_CPU, found(compile=2.0, **worths)) == []


def test_what_others_published_and_the_reference_itself_are_not_wrapped():
    reference = Candidate(problem_id=PLAIN.id, program=PLAIN.reference, proposer="eager")
    others = written(3.0)
    theirs = msgspec.structs.replace(others.candidate, proposer="published:h100", generation=None)
    evaluations = [
        *found(compile=2.0),
        an_evaluation(reference, speedup=1.1),
        msgspec.structs.replace(others, candidate=theirs),
    ]
    assert proposed(ON_A_CPU, evaluations) == []
    assert proposed(ON_A_CPU, [*evaluations, others]) == ["model:coder+compile"]


def test_what_a_model_wrote_is_wrapped_and_named_after_both():
    evaluations = found(**TOGETHER, silu=1.2)
    silu = list(map(an_evaluation, ON_A_GPU.propose(PLAIN, evaluations, 12)))
    broken = msgspec.structs.replace(
        written(1.6), candidate=written(1.6, "def ModelNew(x: ").candidate
    )
    best = written(1.5, SOURCE.replace(" + 1", ".add_(1)"))
    found_all = [*evaluations, *silu, broken, best]
    first, second = ON_A_GPU.propose(PLAIN, found_all, 12)
    assert first.proposer == "model:coder+cuda_graph"
    assert second.proposer == "model:coder+compile"
    assert first.program.entry == "ModelNew"
    assert "class ModelNew(nn.Module):" in first.program.source
    assert "@cuda_graphed\n    def forward" in first.program.source
    assert first.generation == GENERATION
    assert first.exemplar_ids == (best.candidate.id,)
    assert [one.operator for one in first.edits] == ["cuda_graph"]
    found_all += map(an_evaluation, (first, second))
    assert proposed(ON_A_GPU, found_all) == []


def test_combinations_of_rewrites_leave_room_for_what_a_model_wrote():
    evaluations = found(**TOGETHER, silu=1.2, silu_AND_needless_copy=1.5)
    made = ON_A_GPU.propose(PLAIN, evaluations, 12)
    assert len(made) == MAX_COMBINATIONS
    evaluations += [*map(an_evaluation, made), written(3.0)]
    assert proposed(ON_A_GPU, evaluations) == ["model:coder+cuda_graph", "model:coder+compile"]


def test_a_layout_that_gained_is_wrapped():
    evaluations = found(
        IMAGES,
        compile="timeout",
        cuda_graph=2.0,
        channels_last_inside=1.5,
        cudnn_benchmark=0.5,
        channels_last_inside_AND_cudnn_benchmark=0.9,
    )
    made = ON_A_GPU.propose(IMAGES, evaluations, 12)
    assert made[0].proposer == "playbook:channels_last_inside+cuda_graph"
    text = made[0].program.source
    assert "@cuda_graphed\n    @with_channels_last_inputs\n    def forward" in text


def test_a_kernel_is_not_wrapped():
    target = msgspec.structs.replace(a_target(), kind="triton_kernel")
    kernel = msgspec.structs.replace(PLAIN, target=target)
    assert target.is_kernel
    assert proposed(ON_A_GPU, problem=kernel) == []


def test_an_edit_of_the_model_itself_is_no_wrapper():
    """A rewrite on top of what a model wrote is wrapped like the rest."""
    edit = Edit(operator="silu", technique="t", found=("here",), why="It is faster.")
    base = written(3.0)
    candidate = msgspec.structs.replace(base.candidate, edits=(edit,), proposer="model:coder+silu")
    evaluations = [*found(compile=2.0), msgspec.structs.replace(base, candidate=candidate)]
    assert proposed(ON_A_CPU, evaluations) == ["model:coder+silu+compile"]
