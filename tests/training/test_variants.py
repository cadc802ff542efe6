"""Hand-made variants compute what their tasks compute, and there are some for nearly all tasks."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.answer import Parsed, parse
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.records import Evaluation, Exemplar, TextProgram, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification.static_rules import convictions, screen
from model_training.collection import CollectionConfig, examples_of, judged
from model_training.exchanges import statements
from model_training.tasks.draft import TINY, Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct, generate
from model_training.tasks.record import Task
from model_training.variants import HandMade, variants_of
from model_training.variants.kernels.fusion import fuse
from model_training.variants.patterns import Pattern, filled
from model_training.variants.rule import matches
from model_training.variants.rules import AROUND, RULES
from model_training.variants.shapes import shapes_in
from model_training.variants.source import Program, Statement
from model_training.variants.written import rewritten, subject_of, written_better
from tests import triton_on_torch
from tests.fakes import CPU
from tests.training.equality import built, called, errors
from tests.unit.stats.test_regression import measured

NUM_SEEDS = 8


def tasks_of(family: str, num_seeds: int = NUM_SEEDS) -> list[Task]:
    return [generate(seed, family, TINY) for seed in range(num_seeds)]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_better_computes_the_same(family):
    for task in tasks_of(family):
        reference, inputs = built(task.text, "Model")
        wanted = called(reference, inputs)
        for variant in variants_of(task, ("torch",)):
            candidate, _ = built(variant.text, "ModelNew", task.text)
            candidate.load_state_dict(reference.state_dict())
            for _ in range(2):  # what is kept between calls is right at the second
                found = called(candidate, inputs)
                assert found.shape == wanted.shape, (task.name, variant.text)
                torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9, msg=variant.text)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_compute_the_same(family):
    """In single precision, so against how far the task itself is from double precision."""
    num_kernels = 0
    for task in tasks_of(family):
        for variant in variants_of(task, ("triton",)):
            num_kernels += 1
            with triton_on_torch.installed():
                error, own = errors(task.text, variant.text)
            assert error <= 8 * own + 1e-5, (task.name, error, own, variant.text)
    assert num_kernels >= NUM_SEEDS // 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_and_a_compiled_variant_compute_the_same(family, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    task = generate(3, family, TINY)
    for variant in variants_of(task, ("graph", "compile")):
        if variant.kind == "graph":
            text = variant.text.replace("def forward", "def replayed").replace(
                "def compute", "def forward"
            )
        else:
            text = variant.text
        error, own = errors(task.text, text)
        assert error <= 8 * own + 1e-6, (task.name, variant.kind, error, own)


def test_a_graph_copies_what_it_reads_and_clones_what_it_gives(monkeypatch):
    task = generate(0, "activation", TINY)
    variant, plain = variants_of(task, ("graph",))
    assert plain.techniques == ("CUDA graph",)
    body = task.text.partition("def forward(self, x):\n")[2].partition("\n\n")[0]
    assert body in plain.text.partition("def compute(self, x):\n")[2]
    recorded = []

    class Graph:
        def replay(self):
            model = recorded[-1]
            model.out.copy_(model.compute(*model.inputs))

    class Nothing:
        def __init__(self, *_):
            pass

        def wait_stream(self, _):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            recorded.append(model)

    for name, fake in {
        "Stream": Nothing,
        "stream": Nothing,
        "graph": Nothing,
        "current_stream": Nothing,
        "CUDAGraph": Graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake, raising=False)
    reference, inputs = built(task.text, "Model")
    model, _ = built(variant.text, "ModelNew", task.text)
    model.load_state_dict(reference.state_dict())
    others = [one.flip(0) for one in inputs]
    first, second = called(model, inputs), called(model, others)
    torch.testing.assert_close(first, called(reference, inputs))
    torch.testing.assert_close(second, called(reference, others))
    assert not torch.allclose(first, second)
    assert len(recorded) == 2  # once on the side stream, once in the graph


def test_nearly_all_tasks_have_variants_of_more_than_one_form():
    tasks = list(itertools.islice(distinct(list(FAMILIES), TINY), 300))
    num_forms = dict.fromkeys(FAMILIES, 0)
    totals = dict.fromkeys(FAMILIES, 0)
    num_several = 0
    for task in tasks:
        program = Program.of(task.text)
        found = matches(program.forward, [None] * len(program.forward), RULES)
        totals[task.family] += 1
        num_forms[task.family] += bool(found)
        num_several += any(len(one.forms) > 1 for one in found)
    assert all(num_forms[one] >= 0.95 * totals[one] for one in FAMILIES), num_forms
    assert num_several >= 0.9 * len(tasks)


def test_every_rule_is_of_a_step_that_the_generator_writes():
    left = {rule.before for rule in RULES}
    for seed, family in itertools.product(range(200), FAMILIES):
        scale = Scale(min_elements=2**8, max_elements=2**11, max_loop=(4, 64)[seed % 2])
        program = Program.of(generate(seed, family, scale).text)
        for one in matches(program.forward, [None] * len(program.forward), RULES):
            left.discard(one.rule.before)
        if not left:
            break
    assert not left


@pytest.mark.parametrize("family", FAMILIES)
def test_variants_are_answers_that_can_be_learned_from(family):
    task = generate(5, family)
    variants = variants_of(task)
    assert len({one.text for one in variants}) == len(variants)
    assert len({fingerprint(one.text) for one in variants}) >= 3
    keys = built(task.text, "Model")[0].state_dict().keys()
    for one in variants:
        ast.parse(one.text)
        assert max(map(len, one.text.splitlines())) <= 120
        assert one.techniques and one.analysis and one.design
        program = TextProgram(source=one.text, entry="ModelNew")
        assert not list(convictions(screen(program, task.problem.reference)))
        answer = f"## Performance analysis\n{one.analysis}\n\n## Algorithm design\n{one.design}"
        parsed = parse(f"{answer}\n\n## Code\n```python\n{one.text}```\n")
        assert isinstance(parsed, Parsed), parsed
        if one.kind == "torch":
            assert built(one.text, "ModelNew", task.text)[0].state_dict().keys() == keys


class Passing:
    """A judge that passes everything, each twice as fast as the reference."""

    def device(self):
        return CPU

    def evaluate(self, problem, candidate):
        verdict = Verdict(status="passed", findings=())
        return Evaluation(
            candidate=candidate, verdict=verdict, measurements=(measured(0.5, noise=0.0),)
        )


def test_the_collection_takes_them(tmp_path):
    task = generate(1, "loop", TINY)
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        found = list(judged(task, [HandMade()], Passing(), archive, "policy"))
    examples = examples_of(task, found, CPU, (), CollectionConfig())
    assert len(examples) >= 2
    assert {one.proposer for one in examples} == {"hand-made:torch"}
    assert all("class ModelNew" in one.messages[-1].content for one in examples)


def test_after_all_steps_together_each_is_written_better_alone():
    subjects = [subject_of(task.text) for family in FAMILIES for task in tasks_of(family, 2)]
    several = [one for one in subjects if one is not None and len(one.found) > 1]
    assert len(several) > 5
    for subject in several:
        texts = [one.text for one in written_better(subject)]
        alone = [rewritten(subject, [one], 0).text for one in subject.found]
        assert texts[0] == rewritten(subject, subject.found, 0).text
        assert texts[1 : 1 + len(alone)] == alone


@pytest.mark.parametrize("family", ["attention", "pooling", "reduction", "loop"])
def test_what_stands_around_a_step_is_rewritten_without_the_step(family):
    num_around = 0
    for seed in range(40):
        task = generate(seed, family, TINY)
        subject = subject_of(task.text)
        own = [one for one in subject.found if one.rule not in AROUND]
        spans = [subject.program.forward[one.start : one.end] for one in own]
        kept = {ast.unparse(one.node) for span in spans for one in span}
        found = HandMade(rules=AROUND).propose(task.problem, (), 16)
        num_around += bool(found) and bool(own)
        for one in found:
            assert kept <= set(statements(one.program.source))
    assert num_around > 5, "with a step of their own that has a rule, and one around it"


def test_what_was_shown_is_not_proposed_again():
    problem = generate(1, "attention", TINY).problem
    first, *others = HandMade().propose(problem, (), 16)
    shown = [Exemplar(candidate=first, score=1.1)]
    assert HandMade().propose(problem, shown, 16) == others
    assert HandMade().propose(problem, (), 1) == [first]


def test_nothing_is_run_that_the_generator_did_not_write():
    text = generate(1, "attention", TINY).text.replace("import torch\n", "raise SystemExit\n", 1)
    task = Task(source="kernelbench", name="level1/1", family="level1", text=text)
    assert HandMade().propose(task.problem, (), 16) == []
    assert variants_of(task) == []


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="expected some of torch, triton, graph, compile"):
        HandMade(kinds=("cuda",))


@pytest.mark.parametrize(
    ("pattern", "text", "bound"),
    [
        ("x = A + A", "x = y.t() + y.t()", {"A": "y.t()"}),
        ("x = A + A", "x = y + z", None),
        ("x = F.relu(A)", "x = F.relu(y)", {"A": "y"}),
        ("x = F.relu(A)", "x = torch.relu(y)", None),
        ("x = L(x)", "x = self.fc(x)", {"L": "self.fc"}),
        ("x = L(x)", "x = torch.relu(x)", None),
        ("x = A * 2.0", "x = y * 2", None),
        ("x = y\nx = x + A", "x = y\nx = x + 1\nx = 0", {"A": "1"}),
        ("x = y\nx = x + A", "x = y", None),
    ],
)
def test_a_pattern_stands_for_statements(pattern, text, bound):
    assert Pattern.of(pattern).match(Statement.of(text)) == bound


def test_letters_are_filled_in():
    assert filled("x = F.relu(A + AB)", {"A": "y"}) == "x = F.relu(y + AB)"


BODY = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        {body}
        return x


def get_inputs():
    return [torch.randn(8, 8), torch.randn({other})]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "other"),
    [
        ("x = torch.exp(x).sum(dim=1) * torch.exp(y)", "8"),  # of rows with a row of columns
        ("x = torch.exp(torch.sin(torch.cos(x))).sum(dim=0)", "8"),  # along the other dimension
        ("x = torch.exp(torch.exp(x)) @ torch.exp(y)", "8, 8"),
        ("x = torch.exp(x) * torch.exp(y)", "8, 1, 8"),
    ],
)
def test_no_kernel_is_made_of_what_is_not_of_rows(body, other):
    text = BODY.format(body=body, other=other)
    program = Program.of(text)
    assert fuse(program, shapes_in(program, text), program.forward) is None


def test_a_kernel_knows_rows_from_columns_where_there_are_as_many():
    text = BODY.format(body="x = torch.exp(torch.sin(x)) * y + y[:, None]", other="8")
    program = Program.of(text)
    assert fuse(program, shapes_in(program, text), program.forward) is None
    body = "x = torch.exp(torch.sin(x)) * y"
    text = BODY.format(body=body, other="8")
    program = Program.of(text)
    forward, extra = fuse(program, shapes_in(program, text), program.forward)
    with triton_on_torch.installed():
        error, own = errors(text, program.rendered(forward, extra))
    assert error <= 8 * own + 1e-6


@pytest.mark.parametrize(("num_rows", "has_batch_norm"), [(8, True), (1, False)])
def test_a_batch_norm_is_proposed_for_several_rows_alone(num_rows, has_batch_norm):
    body = """center = x.mean(dim=0, keepdim=True)
        spread = torch.sqrt(((x - center) ** 2).mean(dim=0, keepdim=True) + 1e-5)
        x = (x - center) / spread"""
    text = BODY.format(body=body, other="8").replace("randn(8, 8)", f"randn({num_rows}, 8)")
    task = Task(source="generated", name="normalization-0", family="normalization", text=text)
    texts = [one.text for one in variants_of(task, ("torch",))]
    assert any("F.batch_norm(" in one for one in texts) is has_batch_norm
    assert texts
