"""The decode loop, beside transformers' own `generate` and beside the logits it draws from."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from cudal1_ci.errors import ConfigError
from model_training.rollouts import Sampling, decoding, graphed_step, kept
from model_training.rollouts.decoding import Noise, decoded, drawn
from model_training.rollouts.grouped_attention import NAME

VOCABULARY = 23
PAD = 0
LENGTHS = (5, 17, 1, 9, 5, 30, 12)
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": None,
}
MODELS = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
}
GREEDY = Sampling(temperature=0.0, max_tokens=40)


def tiny(name="qwen2", **changes):
    config, kind = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return kind(config(**{**SHAPE, **changes})).eval()


def adapted(model):
    """With an adapter that changes what it says."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        found = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear"))
        with torch.no_grad():
            for one in (one for one in found.parameters() if one.requires_grad):
                one.normal_(std=0.3)
    return found.eval()


def prompts(lengths=LENGTHS, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCABULARY, (n,), generator=random).tolist() for n in lengths]


def generated(model, rows, limit, ends=()):
    """The likeliest tokens by `generate`, row by row, so without padding."""
    settings = GenerationConfig(
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=list(ends) or None,
        pad_token_id=PAD,
        use_cache=True,
    )
    return [
        model.generate(
            input_ids=torch.tensor([row], device=model.device),
            attention_mask=torch.ones(1, len(row), dtype=torch.long, device=model.device),
            generation_config=settings,
        )[0, len(row) :].tolist()
        for row in rows
    ]


@pytest.fixture
def looks_often(monkeypatch):
    """So that rows that have ended are left behind at once."""
    monkeypatch.setattr(decoding, "STEPS_PER_LOOK", 2)


@pytest.fixture
def sizes(monkeypatch):
    """Rows of each step."""
    found = []
    plain = kept.Kept.step

    def step(self, model):
        logits = plain(self, model)
        found.append(len(logits))
        return logits

    monkeypatch.setattr(kept.Kept, "step", step)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_likeliest_tokens_are_those_of_generate(name):
    model = tiny(name)
    rows = prompts()
    expected = generated(model, rows, 40)
    assert len({tuple(one) for one in expected}) > 3
    assert decoded(model, rows, GREEDY, (), PAD) == expected


def test_so_they_are_where_all_prompts_are_one_token():
    rows = prompts((1, 1))
    assert decoded(tiny(), rows, GREEDY, (), PAD) == generated(tiny(), rows, 40)


@pytest.mark.parametrize("heads", [1, 6])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_so_they_are_with_one_head_of_keys_or_one_for_each(heads, implementation):
    model = tiny(num_key_value_heads=heads, attn_implementation=implementation)
    assert model.config._attn_implementation == implementation
    assert decoded(model, prompts(), GREEDY, (), PAD) == generated(model, prompts(), 40)


@pytest.mark.parametrize("merges", [False, True])
def test_so_they_are_with_an_adapter(merges):
    plain = decoded(tiny(), prompts(), GREEDY, (), PAD)
    model = adapted(tiny())
    if merges:
        model.merge_adapter()
    found = decoded(model, prompts(), GREEDY, (), PAD)
    assert found == generated(model, prompts(), 40) != plain
    assert decoded(model.get_base_model(), prompts(), GREEDY, (), PAD) == found


def test_rows_that_have_ended_are_left_behind(looks_often, sizes):
    model, rows = tiny(), prompts((5, 17, 1, 9, 5, 30, 12, 3, 4, 8, 11, 2))
    ends = ends_of(generated(model, rows, 40))
    expected = generated(model, rows, 40, ends)
    sizes.clear()
    assert decoded(model, rows, GREEDY, ends, PAD) == expected
    assert sizes[0] == len(rows)
    assert len(set(sizes)) >= 3
    assert all(2 * few <= many for many, few in itertools.pairwise(dict.fromkeys(sizes)))


def ends_of(answers):
    """Two tokens at which rows end at different places, and some may not."""
    found = {}
    for pair in itertools.combinations(range(VOCABULARY), 2):
        firsts = [next((n for n, one in enumerate(row) if one in pair), None) for row in answers]
        found[pair] = len({n for n in firsts if n is not None and n > 2})
    return max(found, key=found.get)


def test_when_all_rows_have_ended_it_stops(sizes):
    model, rows = tiny(), prompts((4, 4))
    first = [row[0] for row in generated(model, rows, 1)]
    sizes.clear()
    assert decoded(model, rows, GREEDY, first, PAD) == [[one] for one in first]
    assert len(sizes) == decoding.STEPS_PER_LOOK < GREEDY.max_tokens


@pytest.mark.parametrize("limit", [1, 15, 16, 17, 33])
def test_an_answer_has_no_more_tokens_than_it_may(limit, sizes):
    settings = Sampling(temperature=1.0, max_tokens=limit)
    found = decoded(tiny(), prompts(), settings, (), PAD)
    assert [len(one) for one in found] == [limit] * len(LENGTHS)
    assert len(sizes) == limit


@pytest.mark.parametrize("num_tokens", [1, 20, 50])
def test_prompts_may_be_read_in_pieces(monkeypatch, num_tokens):
    monkeypatch.setattr(kept, "PREFILL_TOKENS", num_tokens)
    rows = prompts()
    assert len(kept.pieces(rows, num_tokens)) >= 3
    assert decoded(tiny(), rows, GREEDY, (), PAD) == generated(tiny(), rows, 40)


def test_a_prompt_that_is_there_again_is_read_once():
    rows = prompts()
    again = [*rows, *reversed(rows), rows[2]]
    assert kept.pieces(again, 10**6) == kept.pieces(rows, 10**6)
    assert sorted(map(len, kept.pieces(rows, 10**6)[0])) == sorted(LENGTHS)
    expected = decoded(tiny(), rows, GREEDY, (), PAD)
    found = decoded(tiny(), again, GREEDY, (), PAD)
    assert found == [*expected, *reversed(expected), expected[2]]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.7), (1.3, 0.4)])
def test_tokens_are_drawn_by_their_probability(temperature, top_p):
    """The first token of one prompt many times: chi-square, of which the mean is the number of
    tokens that can be drawn less one, and the variance twice that."""
    model, row = tiny(initializer_range=0.2), prompts((6,))[0]
    num = 4000
    torch.manual_seed(5)
    settings = Sampling(temperature=temperature, top_p=top_p, max_tokens=1)
    counts = torch.zeros(VOCABULARY)
    for (token,) in decoded(model, [row] * num, settings, (), PAD):
        counts[token] += 1
    with torch.no_grad():
        shares = (model(torch.tensor([row])).logits[0, -1] / temperature).softmax(-1)
    order = shares.argsort(descending=True)
    before = shares[order].cumsum(0) - shares[order]
    shares[order[before >= top_p]] = 0.0
    assert 1 < int((shares > 0).sum()) <= (VOCABULARY if top_p == 1 else VOCABULARY - 1)
    expected = num * shares / shares.sum()
    assert not counts[expected == 0].any()
    seen = expected > 5
    assert int(seen.sum()) > 2
    chi = float(((counts - expected) ** 2 / expected)[seen].sum())
    assert chi < int(seen.sum()) - 1 + 4 * (2 * (int(seen.sum()) - 1)) ** 0.5


def test_of_the_likeliest_tokens_one_always_stays():
    logits = torch.tensor([[0.0, 9.0, 1.0]])
    settings = Sampling(top_p=1e-6)
    noise = Noise(1, torch.Generator().manual_seed(0))
    assert {int(drawn(logits, settings, noise)) for _ in range(50)} == {1}


def test_later_tokens_are_drawn_by_what_was_written_before_them():
    """Of each answer, by the logits of the whole text without a cache: no token is unlikelier than
    top_p allows, and a batch of many rows draws different ones."""
    model, rows = tiny(initializer_range=0.2), prompts() * 3
    torch.manual_seed(0)
    settings = Sampling(temperature=1.0, top_p=0.5, max_tokens=20)
    found = decoded(model, rows, settings, (), PAD)
    assert len(set(map(tuple, found))) == len(rows)
    for row, answer in zip(rows, found, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([row + answer])).logits[0, len(row) - 1 : -1]
        shares = logits.softmax(-1)
        own = shares.gather(1, torch.tensor(answer)[:, None])
        assert float((shares * (shares > own + 1e-5)).sum(-1).max()) < 0.5


def test_a_seed_gives_the_same_tokens():
    def answers(seed):
        torch.manual_seed(seed)
        return decoded(tiny(), prompts(), Sampling(max_tokens=20), (3, 4, 5), PAD)

    first = answers(3)
    assert answers(3) == first
    assert answers(4) != first


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.8, 0.9)])
def test_on_a_cpu_they_are_those_that_generate_draws(looks_often, sizes, temperature, top_p):
    """Also where rows are left behind, as random numbers are made for all of them."""
    model, rows, ends = tiny(initializer_range=0.2), prompts((9,) * 12), (3, 4, 5)
    settings = GenerationConfig(
        max_new_tokens=30,
        do_sample=True,
        temperature=temperature,
        top_p=top_p,
        top_k=0,
        eos_token_id=list(ends),
        pad_token_id=PAD,
    )
    ids = torch.tensor(rows)
    torch.manual_seed(3)
    mask = torch.ones_like(ids)
    made = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    expected = [[] for _ in rows]
    for answer, row in zip(expected, made[:, ids.shape[1] :].tolist(), strict=True):
        decoding.extend(answer, row, frozenset(ends))
    torch.manual_seed(3)
    own = Sampling(temperature=temperature, top_p=top_p, max_tokens=30)
    assert decoded(model, rows, own, ends, PAD) == expected
    assert len(set(sizes)) >= 3


def test_attention_is_that_of_before_also_after_an_error(monkeypatch):
    model = adapted(tiny())
    seen = []

    def fails(*_args):
        seen.append(model.config._attn_implementation)
        raise ArithmeticError

    monkeypatch.setattr(decoding, "drawn", fails)
    with pytest.raises(ArithmeticError):
        decoded(model, prompts(), GREEDY, (), PAD)
    assert seen == [NAME]
    assert model.config._attn_implementation == "sdpa"


def test_keys_are_not_written_out_for_each_query_head(monkeypatch):
    """A step asks for no attention of torch's; reading a prompt does."""
    asked = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def counted(query, *args, **kwargs):
        asked.append(query.shape[2])
        return plain(query, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    decoded(tiny(), prompts((7, 3)), GREEDY, (), PAD)
    assert asked == [6] * SHAPE["num_hidden_layers"]


def test_a_model_that_looks_at_a_part_alone_is_refused_where_that_matters():
    model = tiny("mistral", sliding_window=48)
    short = Sampling(temperature=0.0, max_tokens=8)
    assert decoded(model, prompts(), short, (), PAD) == generated(model, prompts(), 8)
    with pytest.raises(ConfigError, match=r"rollouts\.kind"):
        decoded(model, prompts(), GREEDY, (), PAD)


def test_under_autocast_the_tokens_are_those_without_a_cache(looks_often):
    """As on a GPU where all weights are trained: they are in float32, products in bfloat16, which
    a whole text and its last token round alike to some digits only."""
    model, rows = adapted(tiny()), prompts()
    with torch.autocast("cpu", torch.bfloat16):
        found = decoded(model, rows, GREEDY, (), PAD)
        for row, answer in zip(rows, found, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([row + answer])).logits[0, len(row) - 1 : -1].float()
            own = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
            assert float((logits.amax(-1) - own).max()) < 0.2 * float(logits.std())


def test_where_a_step_cannot_be_captured_it_goes_on_without(monkeypatch):
    """With a stand-in for the part of torch that a machine without a GPU does not have."""

    class Refusing:
        def __init__(self, *_args, **_settings):
            pass

        def __enter__(self):
            raise RuntimeError("operation not permitted when stream is capturing")

        def __exit__(self, *_args): ...

    stream = SimpleNamespace(wait_stream=lambda _other: None)
    here = SimpleNamespace(wait_stream=lambda _other: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Refusing)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: here)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: warnings.catch_warnings())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _tensor, _stream: None)
    released = []
    monkeypatch.setattr(graphed_step, "release_generator", released.append)
    model, rows = tiny(), prompts()
    settings = Sampling(temperature=0.0, max_tokens=20)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="capture a step") as said:
        ready = kept.prefilled(model, rows, 20, PAD)
        step = graphed_step.Stepping(model, ready, captures=True)
        found = decoding.written(step, settings, frozenset(), torch.Generator())
    assert found == generated(model, rows, 20)
    assert len(said) == 1
    assert step.num_captures == 0
    assert released == [model.device]


@pytest.mark.parametrize(
    ("kind", "num_rows", "num_going", "num_left", "expected"),
    [
        ("cpu", 4, 3, 100, False),
        ("cpu", 4, 2, 1, True),
        ("meta", 64, 33, 100, False),
        ("meta", 64, 32, 100, True),
        ("meta", 64, 32, 63, False),
        ("meta", 32, 1, 100, False),
    ],
)
def test_on_a_gpu_rows_are_left_behind_only_where_a_new_capture_pays(
    kind, num_rows, num_going, num_left, expected
):
    batch = SimpleNamespace(
        token_B1=torch.zeros(num_rows, 1), column=torch.zeros(1, device=torch.device(kind))
    )
    assert decoding.pays(batch, num_going, num_left) == expected


@pytest.fixture
def steppings(monkeypatch):
    """Those that `decoded` makes; a list of what to change in them before they step."""
    found = []

    class Watched(graphed_step.Stepping):
        def __post_init__(self):
            self.captures = self.captures and Watched.may_capture
            super().__post_init__()
            found.append(self)

    Watched.may_capture = True
    monkeypatch.setattr(decoding, "Stepping", Watched)
    return SimpleNamespace(made=found, kind=Watched)


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("has_adapter", [False, True])
def test_a_graph_gives_the_tokens_of_single_kernels(
    steppings, monkeypatch, temperature, has_adapter
):
    monkeypatch.setattr(decoding, "STEPS_PER_LOOK", 4)
    monkeypatch.setattr(decoding, "FEWEST_ROWS", 1)
    monkeypatch.setattr(decoding, "FEWEST_STEPS", 4)
    model = adapted(tiny()) if has_adapter else tiny()
    model = model.cuda()
    rows, ends = prompts() * 8, (3, 4)
    settings = Sampling(temperature=temperature, max_tokens=60)

    def answers():
        torch.manual_seed(7)
        return decoded(model, rows, settings, ends, PAD)

    graphed = answers()
    steppings.kind.may_capture = False
    assert graphed == answers()
    with_graph, without = steppings.made
    assert with_graph.num_captures >= (1 if temperature == 0 else 2)
    assert without.num_captures == 0
    if temperature == 0:
        assert graphed == generated(model, prompts(), 60, ends) * 8


@pytest.mark.gpu
def test_a_graph_is_captured_under_autocast_with_an_adapter_that_is_not_merged(steppings):
    """As training samples: frozen weights in bfloat16, those of the adapter in float32."""
    model = adapted(tiny().to(torch.bfloat16)).cuda()
    for one in (one for one in model.parameters() if one.requires_grad):
        one.data = one.data.float()
    settings = Sampling(temperature=0.0, max_tokens=40)
    with torch.autocast("cuda", torch.bfloat16):
        graphed = decoded(model, prompts(), settings, (), PAD)
        steppings.kind.may_capture = False
        assert graphed == decoded(model, prompts(), settings, (), PAD)
    assert [one.num_captures for one in steppings.made] == [1, 0]


@pytest.mark.gpu
def test_a_capture_that_fails_leaves_the_device_as_it_was():
    """A layer that looks at its numbers cannot be captured."""
    model = tiny().cuda()
    expected = generated(model, prompts(), 40)

    class Looking(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, numbers):
            assert float(numbers.sum()) == float(numbers.sum())
            return self.inner(numbers)

    model.model.layers[1].mlp = Looking(model.model.layers[1].mlp)
    here = torch.cuda.current_stream()
    with pytest.warns(RuntimeWarning, match="capture a step"):
        assert decoded(model, prompts(), GREEDY, (), PAD) == expected
    assert torch.cuda.current_stream() == here
    assert torch.rand(3, device="cuda").isfinite().all()
    assert (torch.ones(2**20, device="cuda") * 2).sum().item() == 2**21
