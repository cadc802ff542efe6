"""What a CPU settles, and what goes on to a GPU's judge."""

from __future__ import annotations

import threading

import pytest

from cudal1_ci.errors import ConfigError, WorkerError
from cudal1_ci.records import Device, Finding, TextProgram, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import TrialConfig
from model_training import cpu_prefilter as module
from model_training.asking import first_prompt
from model_training.cpu_prefilter import CpuPrefilter, is_trusted, may_try
from model_training.environment import EnvironmentConfig
from model_training.judges import JudgeConfig, opened_prefilters, spare_cores
from model_training.run import Stopped
from model_training.scoring import Scorer
from model_training.tasks.generate import generate
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, answer_to, tasks
from tests.training.tiny import TINY

BY_NAME = {one.name: one for one in PROGRAMS}
TASKS = tasks()
CPU = Device(kind="cpu", name="beside the GPU", num_threads=1, software={"torch": "0"})
CONFIG = TrialConfig(call_s=1.0)


def verdict(status, rule="", message="", evidence=None):
    if not rule:
        return Verdict(status=status)
    finding = Finding(rule=rule, message=message, evidence=evidence)
    return Verdict(status=status, findings=(finding,))


RAISED = verdict("runtime_error", "program.raised", "NameError: name 'y' is not defined")
SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x16 and 8x16)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raised", "NameError: name 'y' is not defined"),
        ("raised", "AttributeError: 'ModelNew' object has no attribute 'weight'"),
        ("raised", "TypeError: linear(): argument 'weight' must be Tensor, not Linear"),
        ("raised", SHAPES),
        ("raised", "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)"),
        ("raised", 'NotImplementedError: Module [X] is missing the required "forward" function'),
        ("import", "ModuleNotFoundError: No module named 'kernels'"),
        ("import", "SyntaxError: invalid syntax (program.py, line 3)"),
    ],
)
def test_errors_of_the_text_itself_settle_a_candidate(name, message):
    status = "compile_error" if name == "import" else "runtime_error"
    assert is_trusted(verdict(status, f"program.{name}", message))


@pytest.mark.parametrize(
    "message",
    [
        "NotImplementedError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        "NotImplementedError: Could not run 'aten::lstm' with arguments from the 'CPU' backend",
        "RuntimeError: view size is not compatible with input tensor's size and stride",
        "RuntimeError: No available kernel. Aborting execution.",
        "RuntimeError: could not create a primitive",
        "RuntimeError: expected scalar type Float but found Half",
        "RuntimeError: can't start new thread",
        "ValueError: expected the shape of a tensor on the GPU",
        "ImportError: libgemm.so: failed to map segment from shared object",
        "AssertionError: ",
        "SystemExit: 1",
    ],
)
def test_errors_that_may_be_the_cpus_own_do_not(message):
    assert not is_trusted(verdict("runtime_error", "program.raised", message))
    assert not is_trusted(verdict("compile_error", "program.import", message))


EVIDENCE = "expected *, got tuple(0:*,1:*,)"
MOST = "32 of 64 elements are further off than any precision explains"
FEW = "31 of 64 elements are further off than any precision explains"


@pytest.mark.parametrize(
    ("found", "is_settled"),
    [
        (verdict("incorrect_shape", "output.shape", "expected outputs of shapes"), True),
        (verdict("incorrect_shape", "output.structure", "differs", EVIDENCE), True),
        (verdict("incorrect_shape", "output.structure", "differs", "expected 3, got 4"), False),
        (verdict("incorrect_shape", "output.device", "expected outputs on"), False),
        (verdict("runtime_error", "state.keys", "the state_dict differs"), True),
        (verdict("runtime_error", "runner.died", "NameError: "), False),
        (verdict("runtime_error", "memory.exhausted", "RuntimeError: size"), False),
        (verdict("compile_error", "program.compile", "NameError: no"), False),
        (verdict("incorrect_values", "values.mismatch", "off by 1e9"), False),
        (verdict("incorrect_values", "values.mismatch", "off by 3", MOST), True),
        (verdict("incorrect_values", "values.mismatch", "off by 1e9", FEW), False),
        (verdict("incorrect_values", "state.baked", "off by 3", MOST), False),
        (verdict("precision", "values.precision", "off by 3", MOST), False),
        (verdict("incorrect_dtype", "output.dtype", "expected"), False),
        (verdict("precision", "values.precision", "off"), False),
        (verdict("mutates_input", "input.mutated", "the call changed"), False),
        (verdict("reward_hack", "state.global", "it changes"), False),
        (verdict("timeout", "runner.timeout", "no answer"), False),
        (verdict("inconclusive", "memory.device", "too little"), False),
        (verdict("invalid_reference", "reference.raised", "NameError: x"), False),
        (verdict("harness_error"), False),
        (verdict("passed"), False),
        (verdict("passed", "state.flags", "it changes flags"), False),
    ],
)
def test_what_means_the_same_on_any_device_is_settled_and_nothing_else(found, is_settled):
    assert is_trusted(found) is is_settled


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = torch.relu(x)", True),
        ("x = torch.zeros(3, device=x.device)", True),
        ("x = x.cuda()", False),
        ("import triton", False),
        ("@torch.compile\ndef f(x): ...", False),
        ("f = compile(source, 'f', 'exec')", False),
        ("from torch.utils import cpp_extension", False),
        ("if x.device.type == 'cpu': raise ValueError", False),
        ("torch.backends.cudnn.benchmark = True", False),
        ("x = x.cuda(", True),  # nothing of it is run anywhere
    ],
)
def test_only_plain_pytorch_is_tried(source, expected):
    assert may_try(TextProgram(source=source, entry="ModelNew")) is expected


class PrefilterVerifier:
    """Says of some programs that they raise."""

    def __init__(self, raising=("broken",), reference="passed", dies_of=()):
        self.raising = {BY_NAME[one].code: one for one in raising}
        self.dies_of = {BY_NAME[one].code for one in dies_of}
        self.reference, self.checked, self.asked = reference, [], []
        self.is_late = False

    def device(self):
        return CPU

    def check(self, problem, most_s=None):
        self.checked.append(problem.id)
        if self.is_late:
            assert most_s == module.GIVE_UP_S
            raise WorkerError(f"the judge did not answer `check` within {most_s:.0f} s")
        return verdict(self.reference)

    def examine(self, problem, candidate):
        code = candidate.program.source.strip()
        self.asked.append(code)
        if code in self.dies_of:
            raise WorkerError("the judge died")
        return RAISED if code in self.raising else verdict("passed")


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


@pytest.fixture
def prompts(archive):
    return [first_prompt(task, archive, DEVICE) for task in TASKS]


def scorer_of(archive, judges, prefilters, go_on=lambda: None, config=CONFIG):
    prefilter = CpuPrefilter(prefilters, archive, config, go_on)
    return Scorer(judges, archive, "p", EnvironmentConfig(), prefilter=prefilter)


def answered(prompt, *names):
    return [(prompt, answer_to(BY_NAME[name]), False) for name in names]


def names_of(judges):
    return sorted(name for one in judges for name in one.asked)


def test_what_is_settled_comes_to_no_judge_and_outcomes_keep_their_order(archive, prompts):
    judges, prefilters = (
        [ToyJudge(), ToyJudge()],
        [PrefilterVerifier(), PrefilterVerifier(), PrefilterVerifier()],
    )
    names = ["indexed", "broken", "copy", "wrong", "broken"]
    asked = [one for name in names for prompt in prompts for one in answered(prompt, name)]
    scorer = scorer_of(archive, judges, prefilters)
    found = scorer.outcomes(asked)
    assert [one.sample.task for one in found] == [prompt.task.name for prompt, *_ in asked]
    statuses = [one.sample.status for one in found[:: len(TASKS)]]
    assert statuses == ["passed", "runtime_error", "copy", "incorrect_values", "runtime_error"]
    assert [one.was_prefiltered for one in found[:: len(TASKS)]] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert [one.is_known for one in found[:: len(TASKS)]] == [False, False, False, False, True]
    assert {one.reward for one in found if one.was_prefiltered} == {0.0}
    assert names_of(judges) == ["indexed"] * 4 + ["wrong"] * 4
    assert scorer.prefilter_s > 0


def test_a_program_of_several_answers_is_tried_once(archive, prompts):
    prefilter = PrefilterVerifier()
    asked = answered(prompts[0], "broken", "indexed", "broken", "indexed")
    scorer_of(archive, [ToyJudge()], [prefilter]).outcomes(asked)
    assert len(prefilter.asked) == 2 and len(prefilter.checked) == 1


def test_a_run_that_goes_on_tries_nothing_again(archive, prompts):
    asked = answered(prompts[0], "broken", "indexed", "copy")
    first = scorer_of(archive, [ToyJudge()], [PrefilterVerifier()]).outcomes(asked)
    judge, prefilter = ToyJudge(), PrefilterVerifier()
    again = scorer_of(archive, [judge], [prefilter]).outcomes(asked)
    assert [one.sample for one in again] == [one.sample for one in first]
    assert [one.was_prefiltered for one in again] == [True, False, False]
    assert [one.is_known for one in again[:2]] == [True, True]
    assert judge.asked == prefilter.asked == prefilter.checked == []
    evaluation = archive.lookup(
        TASKS[0].problem.id, first[0].evaluation.candidate.id, CPU.key, CONFIG.policy
    )
    assert evaluation is not None and evaluation.verdict == RAISED


def test_a_program_that_speaks_of_cuda_goes_straight_on(archive, prompts):
    judge, prefilter = ToyJudge(), PrefilterVerifier()
    ((prompt, text, _),) = answered(prompts[0], "broken")
    text = text.replace("import kernels", "import kernels  # in CUDA")
    (found,) = scorer_of(archive, [judge], [prefilter]).outcomes([(prompt, text, False)])
    assert found.sample.status == "compile_error" and not found.was_prefiltered
    assert judge.asked == ["unknown"] and prefilter.asked == []


def test_a_task_whose_reference_the_cpu_does_not_accept_is_not_tried(archive, prompts):
    judge, prefilter = ToyJudge(), PrefilterVerifier(reference="invalid_reference")
    for name in ("broken", "wrong"):
        scorer_of(archive, [judge], [prefilter]).outcomes(answered(prompts[0], name))
    assert judge.asked == ["broken", "wrong"]
    assert len(prefilter.checked) == 1 and prefilter.asked == []


def test_nor_is_one_whose_reference_takes_long_to_learn(archive, prompts, monkeypatch):
    monkeypatch.setattr(module, "LEARN_S", -1.0)
    judge, prefilter = ToyJudge(), PrefilterVerifier()
    for name in ("broken", "wrong"):
        scorer_of(archive, [judge], [prefilter]).outcomes(answered(prompts[0], name))
    assert judge.asked == ["broken", "wrong"]
    assert len(prefilter.checked) == 1 and prefilter.asked == []


def test_learning_a_reference_is_given_up_and_not_tried_again(archive, prompts, monkeypatch):
    monkeypatch.setattr(module, "LEARN_S", -1.0)
    judge, prefilter = ToyJudge(), PrefilterVerifier()
    prefilter.is_late = True
    scorer = scorer_of(archive, [judge], [prefilter])
    assert scorer.usable(TASKS[:1]) == TASKS[:1]
    for name in ("broken", "wrong"):
        scorer.outcomes(answered(prompts[0], name))
    assert judge.asked == ["broken", "wrong"]
    assert len(prefilter.checked) == 1 and prefilter.asked == []


def test_references_are_learned_while_the_gpus_judges_look_at_them(archive, prompts, monkeypatch):
    monkeypatch.setattr(module, "LEARN_S", -1.0)
    judge, prefilters = ToyJudge(), [PrefilterVerifier(), PrefilterVerifier()]
    scorer = scorer_of(archive, [judge], prefilters)
    assert scorer.usable(TASKS) == TASKS
    learned = [name for one in prefilters for name in one.checked]
    assert sorted(learned) == sorted(one.problem.id for one in TASKS)
    scorer.outcomes(answered(prompts[0], "broken"))  # it takes too long, as is known by now
    assert sum(len(one.checked) for one in prefilters) == len(TASKS)
    assert judge.asked == ["broken"]


def test_a_prefilter_that_dies_of_a_reference_ends_nothing(archive, monkeypatch):
    prefilter = PrefilterVerifier()
    monkeypatch.setattr(prefilter, "device", raises_worker_error)
    assert scorer_of(archive, [ToyJudge()], [prefilter]).usable(TASKS) == TASKS


def raises_worker_error():
    raise WorkerError("the judge died")


def test_what_is_left_of_a_task_after_some_time_goes_on(archive, prompts, monkeypatch):
    monkeypatch.setattr(module, "TASK_S", -1.0)
    judge, prefilter = ToyJudge(), PrefilterVerifier()
    scorer_of(archive, [judge], [prefilter]).outcomes(answered(prompts[0], "broken"))
    assert judge.asked == ["broken"] and prefilter.asked == []


def test_a_prefilter_that_dies_leaves_the_rest_of_the_task_to_the_gpus(archive, prompts):
    judge, prefilter = ToyJudge(), PrefilterVerifier(["broken", "wrong"], dies_of=["indexed"])
    asked = answered(prompts[0], "broken", "indexed", "wrong")
    found = scorer_of(archive, [judge], [prefilter]).outcomes(asked)
    assert [one.was_prefiltered for one in found] == [True, False, False]
    assert judge.asked == ["indexed", "wrong"]


@pytest.mark.parametrize(
    "found",
    [
        verdict("runtime_error", "state.keys", "the state_dict differs"),
        verdict("incorrect_values", "values.mismatch", "off by 3", MOST),
    ],
)
def test_what_other_weights_bring_about_settles_nothing_where_they_are_drawn(
    archive, prompts, monkeypatch, found
):
    monkeypatch.setattr(PrefilterVerifier, "examine", lambda *_: found)
    asked = answered(prompts[0], "broken")
    config = TrialConfig(weights="seed")
    (drawn,) = scorer_of(archive, [ToyJudge()], [PrefilterVerifier()], config=config).outcomes(
        asked
    )
    assert not drawn.was_prefiltered
    (loaded,) = scorer_of(archive, [ToyJudge()], [PrefilterVerifier()]).outcomes(
        answered(prompts[1], "broken")
    )
    assert loaded.was_prefiltered


def test_a_gpus_judge_begins_while_other_tasks_are_tried(archive, prompts):
    begun = threading.Event()

    class Waits(PrefilterVerifier):
        def examine(self, problem, candidate):
            if problem.id == TASKS[-1].problem.id:
                assert begun.wait(10), "no judge began before the prefilter was over"
            return super().examine(problem, candidate)

    class Begins(ToyJudge):
        def evaluate(self, problem, candidate):
            begun.set()
            return super().evaluate(problem, candidate)

    asked = [one for prompt in prompts for one in answered(prompt, "indexed", "wrong")]
    found = scorer_of(archive, [Begins()], [Waits(), Waits()]).outcomes(asked)
    assert [one.sample.status for one in found] == ["passed", "incorrect_values"] * len(TASKS)


def test_a_run_that_must_stop_tries_no_more(archive, prompts):
    left, prefilter = iter([None, None]), PrefilterVerifier()

    def go_on():
        if next(left, "over") == "over":
            raise Stopped("SIGTERM")

    asked = answered(prompts[0], "broken", "indexed", "wrong")
    with pytest.raises(Stopped, match="SIGTERM"):
        scorer_of(archive, [ToyJudge()], [prefilter], go_on).outcomes(asked)
    assert len(prefilter.asked) == 1


def test_a_judge_of_a_gpu_that_cannot_go_on_ends_the_prefilter(archive, prompts):
    class Dead(ToyJudge):
        def evaluate(self, problem, candidate):
            raise OSError("no GPU is left")

    asked = [one for prompt in prompts for one in answered(prompt, "indexed")]
    with pytest.raises(OSError, match="no GPU is left"):
        scorer_of(archive, [Dead()], [PrefilterVerifier()]).outcomes(asked)


def test_settings_of_the_judges_on_the_cpu():
    trial = TrialConfig(seed=3, weights="seed", memory_bytes=16 * 10**9, load_s=60.0, call_s=2.0)
    config = JudgeConfig(devices=("cuda:0", "cuda:1"), num_prefilters=2, trial=trial)
    found = config.prefilter
    assert (found.seed, found.weights, found.call_s) == (3, "seed", 2.0)
    assert found.load_s < 60 and found.memory_bytes < 10**9
    assert list(spare_cores(range(32), config)) == list(range(24))
    assert list(spare_cores(range(4), config)) == list(range(4))
    with pytest.raises(ConfigError, match=r"judge\.num-prefilters"):
        JudgeConfig(kind="toy", num_prefilters=1)
    with opened_prefilters(JudgeConfig()) as none:
        assert none == []


@pytest.mark.starts_verifier
def test_real_programs_are_tried_by_the_products_judge(archive):
    task = generate(3, "diagonal", TINY)
    right = task.text.partition("class Model(nn.Module):")[2].partition("\n\n\n")[0]
    line = "        return x\n"
    assert right.endswith(line.rstrip())
    bodies = {
        "passed": right.replace("return x", "x = x.clone()\n        return x"),
        "raises": right.replace("return x", "return undefined"),
        "shapes": right.replace("return x", "return x @ torch.ones(x.shape[-1] + 1, 2)"),
        "form": right.replace("return x", "return x[:1]"),
        "function": right.replace("return x", "return x + 1"),
        "element": right.replace("return x", "x[0, 0] += 1\n        return x"),
    }
    texts = [
        "## Code\n```python\nimport torch\nimport torch.nn as nn\n"
        f"import torch.nn.functional as F\n\n\nclass ModelNew(nn.Module):{body}\n```\n"
        for body in bodies.values()
    ]
    judge, config = ToyJudge(), JudgeConfig(num_prefilters=1)
    prompt = first_prompt(task, archive, DEVICE)
    with opened_prefilters(config) as prefilters:
        scorer = scorer_of(archive, [judge], prefilters, config=config.prefilter)
        found = scorer.outcomes([(prompt, text, False) for text in texts])
        assert prefilters[0].device().kind == "cpu"
    assert [one.was_prefiltered for one in found] == [False, True, True, True, True, False]
    settled = [one.evaluation.verdict for one in found[1:5]]
    assert [one.status for one in settled] == [
        *("runtime_error", "runtime_error", "incorrect_shape", "incorrect_values"),
    ]
    assert [one.findings[0].message.partition(":")[0] for one in settled[:2]] == [
        "NameError",
        "RuntimeError",
    ]
    assert len(judge.asked) == 2
