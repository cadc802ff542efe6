"""Hand-made variants compute what their tasks compute, and there are some for nearly all tasks."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch

from cudal1_ci.propose.llm.answer import Parsed, parse
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.records import Evaluation, Exemplar, TextProgram, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification.static_rules import convictions, screen
from model_training.examples import CollectionConfig, examples_of, judged
from model_training.tasks.draft import Scale
from model_training.tasks.families import FAMILIES
from model_training.tasks.generate import distinct, generate
from model_training.tasks.record import Task
from model_training.variants import HandMade, rewrite, rewrites, subject_of, variants_of
from model_training.variants.patterns import Pattern, filled
from model_training.variants.rule import matches
from model_training.variants.rules import AROUND, RULES
from model_training.variants.source import Program, Statement
from tests.fakes import CPU
from tests.training.equality import built, called
from tests.training.tiny import TINY
from tests.unit.stats.test_regression import measured

NUM_SEEDS = 8


def tasks_of(family: str, num_seeds: int = NUM_SEEDS) -> list[Task]:
    return [generate(seed, family, TINY) for seed in range(num_seeds)]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_better_computes_the_same(family):
    for task in tasks_of(family):
        reference, inputs = built(task.text, "Model")
        wanted = called(reference, inputs)
        for variant in variants_of(task):
            candidate, _ = built(variant.text, "ModelNew", task.text)
            candidate.load_state_dict(reference.state_dict())
            for _ in range(2):  # what is kept between calls is right at the second
                found = called(candidate, inputs)
                assert found.shape == wanted.shape, (task.name, variant.text)
                torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9, msg=variant.text)


@pytest.mark.parametrize("number", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_nearly_all_tasks_have_variants_of_more_than_one_form(number):
    tasks = list(itertools.islice(distinct(list(FAMILIES), TINY), number))
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
    assert len({fingerprint(one.text) for one in variants}) == len(variants) > 1
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
    assert {one.proposer for one in examples} == {"hand-made"}
    assert all("class ModelNew" in one.messages[-1].content for one in examples)


def test_after_all_steps_together_each_is_written_better_alone():
    subjects = [subject_of(task.text) for family in FAMILIES for task in tasks_of(family, 2)]
    several = [one for one in subjects if one is not None and len(one.found) > 1]
    assert len(several) > 5
    for subject in several:
        texts = [one.text for one in rewrites(subject)]
        alone = [rewrite(subject, [one], 0).text for one in subject.found]
        assert texts[0] == rewrite(subject, subject.found, 0).text
        assert texts[1 : 1 + len(alone)] == alone


@pytest.mark.parametrize(
    "family",
    [pytest.param("attention", marks=pytest.mark.slow), "pooling", "reduction", "loop"],
)
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
            tree = ast.parse(one.program.source)
            assert kept <= {
                ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)
            }
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


@pytest.mark.parametrize(("num_rows", "has_batch_norm"), [(8, True), (1, False)])
def test_a_batch_norm_is_proposed_for_several_rows_alone(num_rows, has_batch_norm):
    body = """center = x.mean(dim=0, keepdim=True)
        spread = torch.sqrt(((x - center) ** 2).mean(dim=0, keepdim=True) + 1e-5)
        x = (x - center) / spread"""
    text = BODY.format(body=body, other="8").replace("randn(8, 8)", f"randn({num_rows}, 8)")
    task = Task(source="generated", name="normalization-0", family="normalization", text=text)
    texts = [one.text for one in variants_of(task)]
    assert any("F.batch_norm(" in one for one in texts) is has_batch_norm
    assert texts
