"""A transformer's log probabilities, some tokens at a time, against all its logits at once."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from cudal1_ci.errors import UnsupportedError
from model_training.batches import Group, batch_of, rows_of
from model_training.grpo import GrpoConfig, step
from model_training.objective.loss import ObjectiveConfig
from model_training.policy import PolicyConfig, load_policy
from model_training.token_scores import ScoredPolicy, StartPolicy
from model_training.toy import make_model_folder

GROUPS = [
    Group(prompt=(4, 9), completions=((6, 2), (7, 8, 9, 2)), rewards=(1.0, 0.0)),
    Group(prompt=(4, 9, 5, 3, 3), completions=((6, 6, 2), (12, 13, 14, 15, 2)), rewards=(1.0, 0.5)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model_folder(tmp_path_factory.mktemp("toy"), seed=0)


@pytest.fixture
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def trained(model) -> list:
    return [one for one in model.parameters() if one.requires_grad]


def alone(model, prompt, text, temperature):
    """Of one completion without padding, from all logits."""
    logits = model(torch.tensor([[*prompt, *text]])).logits[0, len(prompt) - 1 : -1]
    logp = (logits / temperature).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(-1, torch.tensor(text)[:, None])[:, 0], entropy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tokens_at_once", [3, 1000])
def test_they_are_those_of_each_completion_alone(model, temperature, tokens_at_once):
    rows, _ = rows_of(GROUPS, "centered")
    policy = ScoredPolicy(model, trained(model), temperature, tokens_at_once)
    sizes: list[int] = []
    model.lm_head.register_forward_hook(lambda _, inputs, out: sizes.append(len(inputs[0])))
    found = policy.scores(batch_of(rows, pad=0))
    assert max(sizes) <= tokens_at_once, "never all logits at once"
    assert sum(sizes) == sum(len(row.completion) for row in rows), "none of prompts or padding"
    for number, row in enumerate(rows):
        logp, entropy = alone(model, row.prompt, row.completion, temperature)
        size = len(row.completion)
        torch.testing.assert_close(found.logp_BT[number, :size], logp, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.entropy_BT[number, :size], entropy, atol=1e-5, rtol=1e-5)
        assert not found.logp_BT[number, size:].any()


@pytest.mark.parametrize("is_lora", [False, True])
def test_a_step_in_pieces_has_the_gradient_of_all_logits_at_once(model, is_lora):
    if is_lora:
        model = get_peft_model(model, LoraConfig(target_modules="all-linear", r=2))
        for name, one in model.named_parameters():  # else B is 0, and so is the gradient of A
            if "lora_B" in name:
                torch.nn.init.normal_(one.data, generator=torch.Generator().manual_seed(0))
    base = model.get_base_model() if is_lora else model
    weighting = ObjectiveConfig(weighting="token", beta=0.0)
    config = GrpoConfig(objective=weighting, piece_size=1, max_grad_norm=1e9)
    weights = trained(model)
    before = [one.detach().clone() for one in weights]
    policy = ScoredPolicy(base, weights, tokens_at_once=2)
    step(policy, torch.optim.SGD(weights, lr=1.0), GROUPS, config)
    moved = [old - new.detach() for old, new in zip(before, weights, strict=True)]
    with torch.no_grad():
        for old, new in zip(before, weights, strict=True):
            new.copy_(old)
    rows, totals = rows_of(GROUPS, "group_normalized")
    loss = sum(
        -row.advantage * alone(model, row.prompt, row.completion, 1.0)[0].sum() / totals.num_tokens
        for row in rows
    )
    expected = torch.autograd.grad(loss, weights)
    torch.testing.assert_close(moved, list(expected), atol=2e-6, rtol=1e-4)
    assert max(float(one.abs().max()) for one in expected) > 1e-3


def test_the_start_is_kept_while_the_weights_are_trained(model):
    policy = ScoredPolicy(model, trained(model))
    start = StartPolicy(policy)
    optimizer = torch.optim.SGD(trained(model), lr=0.5)
    first = copy.deepcopy(model)
    metrics = [step(policy, optimizer, GROUPS, GrpoConfig(), reference=start) for _ in range(3)]
    assert metrics[0].divergence == pytest.approx(0.0, abs=1e-7)
    assert metrics[0].ratio == pytest.approx(1.0)
    assert metrics[2].divergence > metrics[1].divergence > 1e-5
    batch = batch_of(rows_of(GROUPS, "centered")[0], pad=0)
    now = [one.detach().clone() for one in trained(model)]
    expected = ScoredPolicy(first, trained(first)).scores(batch).logp_BT
    assert torch.equal(start.scores(batch).logp_BT, expected.detach())
    assert all(torch.equal(a, b) for a, b in zip(now, trained(model), strict=True))


def test_a_model_that_changes_its_logits_is_refused(model):
    policy = ScoredPolicy(model, trained(model))
    policy.check()

    class Capped(torch.nn.Module):
        """Gemma's way."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.device = inner, inner.device
            self.base_model_prefix, self.model = "model", inner.model

        def get_output_embeddings(self):
            return self.inner.get_output_embeddings()

        def forward(self, **inputs):
            found = self.inner(**inputs)
            found.logits = 0.1 * torch.tanh(found.logits / 0.1)
            return found

    with pytest.raises(UnsupportedError, match="Capped changes its logits"):
        ScoredPolicy(Capped(model), trained(model)).check()


@pytest.mark.gpu
def test_a_gpu_says_in_half_precision_what_a_cpu_says(folder):
    """Log probabilities and the gradient of an adapter; the base's weights are in bfloat16."""
    rows, _ = rows_of(GROUPS, "centered")
    found, gradients = [], []
    for device in ("cpu", "cuda"):
        policy = load_policy(PolicyConfig(path=str(folder), lora_rank=2, device=device))
        with torch.no_grad():
            for number, one in enumerate(policy.parameters()):  # else B is 0, and A's gradient
                random = torch.Generator().manual_seed(number)
                one.copy_(0.1 * torch.randn(one.shape, generator=random))
        scored = ScoredPolicy(policy.base, policy.parameters())
        scored.check()
        logp_BT = scored.scores(batch_of(rows, pad=0, device=policy.device)).logp_BT
        logp_BT.sum().backward()
        found.append(logp_BT.detach().cpu())
        gradients.append(torch.cat([one.grad.flatten().cpu() for one in policy.parameters()]))
    torch.testing.assert_close(found[1], found[0], atol=0.1, rtol=0.05)
    assert bool(gradients[1].isfinite().all())
    # Half precision alone moves the gradient of weights this small by 0.3 of its norm on a CPU.
    assert float(torch.cosine_similarity(*gradients, dim=0)) > 0.9
