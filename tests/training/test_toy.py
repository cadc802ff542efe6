"""The toy language: its tokens are the product's texts, its programs do what the table says."""

from __future__ import annotations

import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cudal1_ci.propose.llm.answer import Parsed, Unusable, parse
from cudal1_ci.propose.llm.splice.text_form import as_text_program
from cudal1_ci.records.archive import Archive
from cudal1_ci.stats import speedups
from model_training.answers import answer_text
from model_training.examples import judged
from model_training.prompt_stream import Stream, StreamConfig
from model_training.toy import (
    DEVICE,
    POLICY,
    PROGRAMS,
    ToyJudge,
    ToyProposer,
    answer_to,
    make_model_folder,
    make_tokenizer,
    tasks,
)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_an_answer_is_seven_tokens_and_comes_back_letter_by_letter(tokenizer, program):
    text = answer_to(program)
    tokens = tokenizer(text).input_ids
    assert len(tokens) == 7
    assert tokenizer.unk_token_id not in tokens
    assert tokenizer.decode([*tokens, tokenizer.eos_token_id], skip_special_tokens=True) == text
    read = parse(text)
    assert isinstance(read, Parsed)
    assert (read.analysis, read.design) == (program.analysis, program.design)
    assert read.code.strip() == program.code


def test_what_stage_one_writes_is_in_the_language(tokenizer, archive):
    (task, *_) = tasks()
    evaluations = list(judged(task, [ToyProposer()], ToyJudge(), archive, POLICY))
    texts = [answer_text(task.problem, one) for one in evaluations]
    assert texts == [None if one.status is None else answer_to(one) for one in PROGRAMS], (
        "the copy is no answer"
    )
    found = [speedups.score(one) for one in evaluations]
    assert found == pytest.approx([one.speedup or 0.0 for one in PROGRAMS])


def test_programs_do_what_the_table_says():
    (task, *_) = tasks()
    reference: dict = {}
    exec(task.text, reference)
    x, scale = reference["get_inputs"]()
    expected = reference["Model"]()(x, scale)
    for program in PROGRAMS:
        found = as_text_program(task.problem.reference, program.code)
        assert isinstance(found, Unusable) == (program.status is None)
        if program.status == "compile_error":
            with pytest.raises(ImportError):
                exec(program.code, {})
            continue
        scope: dict = {}
        exec(program.code, scope)
        model = scope["ModelNew"]()
        is_right = torch.allclose(model(x, scale), expected)
        again = torch.allclose(model(x + 1, scale), reference["Model"]()(x + 1, scale))
        assert (is_right, again) == {
            "incorrect_values": (False, False),
            "reward_hack": (True, False),
        }.get(program.status, (True, True))


def test_a_prompt_shows_the_programs_of_its_exemplars(tokenizer, archive):
    some = tasks()
    for task in some:
        list(judged(task, [ToyProposer(PROGRAMS[:3])], ToyJudge(), archive, POLICY))
    stream = Stream(some, archive, DEVICE, StreamConfig())
    before, after = stream.at(0, 0.0), stream.at(1, time.time())

    def shown(prompt) -> set[str]:
        text = [{"role": one.role, "content": one.content} for one in prompt.messages]
        tokens = tokenizer.apply_chat_template(text, add_generation_prompt=True, return_dict=False)
        assert len(tokens) < 64
        words = tokenizer.convert_ids_to_tokens(tokens)
        assert words[0] == "<|system|>"
        assert words[-1] == "<|assistant|>"
        assert sum(word.startswith("rows = ") for word in words) >= 1
        return {one.name for one in PROGRAMS if one.code in words}

    assert shown(before) == set()
    assert len(shown(after)) >= 1


def test_a_folder_of_a_model_is_as_transformers_wants_it(tmp_path):
    folder = make_model_folder(tmp_path / "toy", seed=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokens = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Faster."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    assert model(**tokens).logits.shape[-1] == len(tokenizer)
    assert tokenizer.chat_template == make_tokenizer().chat_template
    again = AutoModelForCausalLM.from_pretrained(make_model_folder(tmp_path / "b", seed=3))
    other = AutoModelForCausalLM.from_pretrained(make_model_folder(tmp_path / "c", seed=4))
    assert torch.equal(model.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(model.lm_head.weight, other.lm_head.weight)
