"""Loops whose turns need less of each other than they seem: found, right, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import experts, loops
from tests.unit.propose.recorded.rig import assert_same, proposed

RULES = (*experts.RULES, *loops.RULES)
START = """import math

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH = 6, 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(5, 4)
        self.state = nn.Linear(4, 4, bias=False)
        self.gate = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.0)
        self.words = nn.Embedding(4, 4)
        self.table = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("bias", torch.randn(4))

    def forward(self, x, tags):
"""
END = """

def get_inputs():
    return [torch.randn(BATCH, STEPS, 5), torch.randint(0, 4, (STEPS, BATCH))]
"""
SIZES = ((6, 3), (1, 1), (2, 1), (1, 4), (9, 2))


def text_of(body: str) -> str:
    """Return a module whose forward method has these lines."""
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def rewritten(tmp_path: Path, body: str) -> dict[str, str]:
    return proposed(tmp_path, text_of(body), RULES)


def assert_found(tmp_path: Path, body: str, rule: str, *parts: str) -> None:
    """Assert that a rule finds the lines, and that what it writes is right for other sizes."""
    found = rewritten(tmp_path, body)
    assert list(found) == [rule]
    for part in parts:
        assert part in found[rule]
    for steps, batch in SIZES:
        sized = f"STEPS, BATCH = {steps}, {batch}"
        given, new = text_of(body), found[rule]
        assert_same(tmp_path, *(t.replace("STEPS, BATCH = 6, 3", sized) for t in (given, new)))


SUMS = {
    "gathers": (
        """
steps, batch = tags.shape
score = self.bias[tags[0]]
for i in range(1, steps):
    score = score + self.table[tags[i - 1], tags[i]] * x[:, i, 0]
    score = score + x[torch.arange(batch), i, tags[i]]
return score
""",
        ("tags[:-1], tags[1:]", "x[:, 1:steps, 0]"),
    ),
    "next tag": (
        """
score = self.bias[tags[0]]
for i in range(tags.size(0) - 1):
    now, then = tags[i], tags[i + 1]
    moved = self.table[now.view(-1), then.view(-1)]
    score = score + moved + x[:, i, 1]
return score
""",
        (".sum(0)",),
    ),
    "in place and negative": (
        """
total = torch.zeros(x.size(0), 4)
for t in range(x.size(1)):
    y = torch.tanh(self.proj(x[:, t]))
    total -= y * self.bias
return total
""",
        ("total -= (", "self.proj(x)"),
    ),
    "numbers": (
        """
total = 0.0
for c in range(x.size(1)):
    part = self.proj(x[:, c]).sum() / math.sqrt(2 * math.pi)
    total = total + 1 - part
    total = total - part + 2
return total
""",
        ("total + x.size(1) - ", "+ x.size(1) * 2 - "),
    ),
    "rows of one sample": (
        """
total = 0
first = x.size(0) - 1
for c in range(x.size(1)):
    total = total + x[first, c].pow(2).sum()
return total
""",
        ("x[first, : x.size(1)]",),
    ),
    "flattened and permuted": (
        """
wide = x[..., None] * self.bias
total = 0
for c in range(x.size(1)):
    row = wide[:, c]
    total = total + row.flatten(1).sum(dim=1) + row.flatten(end_dim=1).sum()
    total = total + row.permute(0, 2, 1).flatten(-2).max() * row.permute((2, 0, 1))[0].sum()
return total
""",
        (".flatten(2)", ".flatten(1, 2)", ".permute(0, 3, 1, 2)"),
    ),
    "lines that end within brackets": (
        """
total = 0
for t in range(tags.size(0)):
    chosen = (
        x[:, t]
        .tanh()
        .gather(1, tags[t].view(-1, 1))
        .squeeze(1)
    )
    total = (
        total
        + chosen
        * self.bias[0]
    )
return total
""",
        ("tags[:, :, None]", "* self.bias[0]"),
    ),
    "rows of a table": (
        """
total = 0
for t in range(tags.size(0)):
    total = total + self.words(tags[t]).tanh() * F.embedding(tags[t], self.table)
return total
""",
        ("self.words(tags)", "F.embedding(tags, self.table)"),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_turns_are_batched(tmp_path: Path, name: str) -> None:
    body, parts = SUMS[name]
    assert_found(tmp_path, body, "batched_loop", *parts)
    assert "for " not in rewritten(tmp_path, body)["batched_loop"]


LISTS = {
    "stack": "outs.append(F.gelu(self.proj(x[:, t])))|torch.stack(outs, dim=1)",
    "stack of the last": "outs.append(self.proj(x[:, t, :]).softmax(-1))|torch.stack(outs, -1)",
    "cat": "outs.append(self.proj(x[:, t]) + self.bias)|torch.cat(outs, dim=-1)",
    "cat of ones": "outs.append(self.proj(x[:, t : t + 1]).exp())|torch.cat(outs, 1)",
    "products": "outs.append(x[:, t].t() @ x[:, t] / 3)|torch.stack(outs)",
    "reduction": "outs.append((x[:, t] * 2).mean(dim=0))|torch.stack(outs, 0)",
    "broadcast": "outs.append(self.proj(x[:, t])[:, None] * self.table)|torch.stack(outs, 1)",
    "lower rank": "outs.append(x[:, t, 0] * self.proj(x[:, t]).t())|torch.stack(outs)",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_turns_are_batched(tmp_path: Path, name: str) -> None:
    turn, join = LISTS[name].split("|")
    body = f"""
steps = x.shape[1]
outs = []
for t in range(steps):
    {turn}
return {join}
"""
    assert_found(tmp_path, body, "batched_loop")
    assert "for t" not in rewritten(tmp_path, body)["batched_loop"]


@pytest.mark.parametrize("setting", ["max_norm=1.0", "scale_grad_by_freq=True"])
def test_a_table_that_counts_or_changes_rows_is_left_alone(tmp_path: Path, setting: str) -> None:
    body, _ = SUMS["rows of a table"]
    text = text_of(body).replace("nn.Embedding(4, 4)", f"nn.Embedding(4, 4, {setting})")
    assert "batched_loop" not in proposed(tmp_path, text, RULES)


def test_positions_of_a_new_tensor_are_written_at_once(tmp_path: Path) -> None:
    body = """
out = torch.zeros(x.size(0), x.size(1), 4)
for t in range(x.size(1)):
    out[:, t, :] = torch.sigmoid(self.proj(x[:, t]))
return out
"""
    assert_found(tmp_path, body, "batched_loop", "out[:] = torch.sigmoid(self.proj(x))")


JOINED = {
    "torch.cat([x[:, i : i + 1] for i in tags[:, 0].clamp(max=0)], dim=1)": None,
    "torch.cat([x[:, i].unsqueeze(1).clone() for i in order], dim=1)": "x[:, order]",
    "torch.stack([x[:, i].detach().clone() for i in order])": "x[:, order].detach()",
    "torch.stack([self.proj(x[:, t]) for t in range(x.shape[1])], dim=1)": "self.proj(x)",
    "torch.cat([x[:, i : i + 1] for i in order], 1)": "x.index_select(1, order)",
}


@pytest.mark.parametrize("code", JOINED)
def test_joined_slices_are_one_indexing(tmp_path: Path, code: str) -> None:
    body = f"""
order = tags[:, 0] % x.size(1)
return {code}
"""
    if JOINED[code] is None:
        assert rewritten(tmp_path, body) == {}
        return
    assert_found(tmp_path, body, "joined_slices", f"return {JOINED[code]}")


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("counts[0, i, j]", "counts[0, i] = "),
        ("counts[:, i, j]", "counts[:, i] = "),
        ("counts[0][i, j]", None),
        ("counts[0, index, j]", None),
    ],
)
def test_a_row_of_an_outer_loop_is_written_at_once(
    tmp_path: Path, line: str, new: str | None
) -> None:
    sums = ".sum((0, 1))" if "0" in line else ".sum(0)[:1]"
    body = f"""
other = (tags * 3 + 1) % 4
counts = torch.zeros(1, 4, 4)
for i in range(4):
    index = tags[0, 0]
    for j in range(4):
        {line} = ((tags == i) & (other == j)){sums}
return counts
"""
    found = rewritten(tmp_path, body).get("batched_loop", "")
    assert (new in found) if new else not found
    if new:
        assert_same(tmp_path, text_of(body), found)


@pytest.mark.parametrize(
    ("read", "new"),
    [
        ("torch.stack(out).mean()", "(x - self.shift).mean()"),
        ("torch.stack(out)[0]", "(x - self.shift)[0]"),
        ("2 * torch.stack(out)", "2 * (x - self.shift)"),
        ("torch.stack(out) * 2", "(x - self.shift) * 2"),
        ("torch.stack(out) - 2", "return x - self.shift - 2"),
        ("2 - torch.stack(out)", "2 - (x - self.shift)"),
        ("-torch.stack(out)", "-(x - self.shift)"),
        ("torch.stack(out) > 2", "return x - self.shift > 2"),
        ("torch.relu(torch.stack(out))", "torch.relu(x - self.shift)"),
    ],
)
def test_an_expression_in_the_place_of_a_call_has_brackets_where_it_needs_them(
    tmp_path: Path, read: str, new: str
) -> None:
    body = f"out = []\nfor one in x:\n    out.append(one - self.shift)\nreturn {read}"
    text = text_of(body).replace(
        "self.words", "self.shift = nn.Parameter(torch.randn(5))\n        self.words"
    )
    found = proposed(tmp_path, text, RULES)["batched_loop"]
    assert new in found
    assert_same(tmp_path, text, found)


LOSSES = {
    "of elements": """
total = 0.0
for i in range(len(x)):
    total = total + F.mse_loss(x[i], y[i]) + F.l1_loss(x[i, 0], y[i, 0], reduction="sum")
return total
""",
    "of classes": """
total = 0.0
for i in range(len(x)):
    total = total + F.cross_entropy(x[i], targets[i])
return total
""",
    "of a row as a batch": """
losses = []
for i in range(len(x)):
    losses.append(F.cross_entropy(x[i : i + 1, 0], targets[i : i + 1, 0]))
return torch.stack(losses)
""",
    "of one target": """
return torch.stack([F.cross_entropy(x[i, 0], targets[i, 0]) for i in range(len(x))])
""",
    "of some targets": """
targets[:, 1::2] = -100
return torch.stack([F.cross_entropy(x[i], targets[i]) for i in range(len(x))])
""",
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_turns_are_one_call(tmp_path: Path, name: str) -> None:
    given = "y = x.flip(1).clone()\ntargets = tags.t().contiguous()\n"
    rule = "joined_slices" if "for i in range(len(x))])" in LOSSES[name] else "batched_loop"
    assert_found(tmp_path, given + LOSSES[name].strip(), rule, 'reduction="none"')


@pytest.mark.parametrize("change", ["weight=self.bias", "label_smoothing=0.1", "ignore_index=1"])
def test_losses_of_another_kind_are_left_alone(tmp_path: Path, change: str) -> None:
    body = f"""
targets = tags.t().contiguous()
total = 0.0
for i in range(len(x)):
    total = total + F.cross_entropy(self.proj(x[i]), targets[i], {change})
return total
"""
    assert "none" not in str(rewritten(tmp_path, body))


SCATTERED = {
    "rows": """
out = torch.zeros(4, 5)
for i in range(len(tags)):
    out[tags[i, 0]] += x[0, i]
return out
""",
    "edges": """
index = tags.flatten()
out = torch.zeros(4, 5)
rows = x.flatten(0, 1)
for i in range(index.size(0)):
    to, of = index[i], index[i] // 2
    out[to] += rows[of]
return out
""",
    "counts": """
other = (tags * 3 + 1) % 4
counts = torch.zeros(4, 4)
for one, two in zip(tags.view(-1), other.flatten()):
    counts[one.long(), two.long()] += 1
return counts
""",
    "a position of the host": """
counts = torch.zeros(7, 4)
for i in range(tags.size(1)):
    counts[i, tags[0, i].item()] += 2.5
return counts
""",
}


@pytest.mark.parametrize("name", SCATTERED)
def test_turns_add_at_positions_of_a_tensor_at_once(tmp_path: Path, name: str) -> None:
    """Several turns may have the same position."""
    assert_found(tmp_path, SCATTERED[name], "batched_loop", ".index_put_(", "accumulate=True")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+= x", "-= x"),
        ("+= x[0, i]", "+= out.mean() * x[0, i]"),
        ("+= x[0, i]", "+= x[0, i].double()"),
        ("+= x[0, i]", "+= x[0, i, 0]"),
        ("return out", "return out, i"),
        ("    out[tags[i, 0]]", "    kept = out[0]\n    out[tags[i, 0]]"),
    ],
)
def test_what_is_added_in_another_way_is_left_alone(tmp_path: Path, old: str, new: str) -> None:
    body = SCATTERED["rows"].replace(old, new)
    assert body != SCATTERED["rows"]
    assert "batched_loop" not in rewritten(tmp_path, body)


PLACED = {
    "a value of its own": "out[i, tags[0, i]] = x[i, 0, 0]",
    "a number": "out[i, tags[0, i]] = 1.0",
    "a computed value": "out[i, tags[0, i] - 1] = x[i].sum()",
}


@pytest.mark.parametrize("name", PLACED)
def test_a_position_of_each_row_is_written_at_once(tmp_path: Path, name: str) -> None:
    body = f"out = torch.zeros(len(x), 4)\nfor i in range(len(x)):\n    {PLACED[name]}\nreturn out"
    assert_found(tmp_path, body, "batched_loop", "[:, None]] = ")


@pytest.mark.parametrize(
    ("made", "value"),
    [
        ("x[:, 0, :4].clone()", "out[i, 0]"),
        ("x[:, 0, :4].clone()", "kept[i, 0]"),
        ("torch.zeros(len(x), 4)", "out[i - 1, 0]"),
        ("torch.zeros(len(x), 4)", "kept[i, 0]"),
    ],
)
def test_values_that_writes_may_change_are_left_alone(
    tmp_path: Path, made: str, value: str
) -> None:
    view = "kept = out[:]\n" * ("kept" in value)
    line = f"out[i, tags[0, i]] = {value}"
    body = f"out = {made}\n{view}for i in range(len(x)):\n    {line}\nreturn out"
    assert "batched_loop" not in rewritten(tmp_path, body)


def test_rows_of_each_turn_are_picked_by_its_index(tmp_path: Path) -> None:
    body = "y = x.mT\nreturn torch.stack([y[i][tags[:, i]] for i in range(len(y))])"
    assert_found(tmp_path, body, "joined_slices", "[:, None], tags")


def test_each_row_is_picked_by_its_number_and_an_index(tmp_path: Path) -> None:
    body = "y = x.mT\nreturn torch.stack([y[i, tags[0, i] - 1] for i in range(len(y))])"
    assert_found(tmp_path, body, "joined_slices", "tags[0, : len(y)] - 1]")


def test_a_list_that_shadows_its_tensor_is_joined(tmp_path: Path) -> None:
    body = """
order = tags[:, 0] % x.size(1)
past = []
for one in (x, x * 2):
    one = [one[:, i].unsqueeze(1) for i in order]
    past.append(torch.cat(one, dim=1))
return past[0] + past[1]
"""
    assert_found(tmp_path, body, "joined_slices", "past.append(one[:, order])")


RECURRENCES = {
    "gru": (
        """
batch, steps, _ = x.shape
h = torch.zeros(batch, 4, device=x.device)
states = torch.zeros(batch, steps, 4)
for t in range(steps):
    xt = x[:, t, :]
    z = torch.sigmoid(self.proj(xt) + self.state(h))
    c = torch.tanh(self.proj(xt) + self.gate(z * h))
    h = z * c + (1 - z) * h
    states[:, t, :] = h
return states
""",
        ("self.proj(xt_all)", "torch.addmm(proj_all[t], h, state_weight)", "torch.lerp(h, c, z)"),
    ),
    "scan": (
        """
h, outs = torch.zeros(x.size(0), 4), [x[:, 0, :4]]
for t in range(1, x.size(1)):
    decay = torch.exp(-torch.sigmoid(self.proj(x[:, t])))
    h = decay * h + self.proj(x[:, t] - x[:, t - 1])
    outs.append(h)
return torch.stack(outs, dim=1)
""",
        ("self.proj(x[:, 1:] - x[:, :-1])", "decay_all[:, t - 1]"),
    ),
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_what_needs_no_state_leaves_a_recurrence(tmp_path: Path, name: str) -> None:
    body, parts = RECURRENCES[name]
    assert_found(tmp_path, body, "hoisted_from_loop", *parts)


SUNK = {
    "scan": (
        """
h = torch.zeros(x.size(0), 5)
outs = []
for t in range(x.size(1)):
    h = h * 0.5 + x[:, t]
    y = torch.einsum("bd,bd->b", h, x[:, t, :])
    outs.append(y)
y = torch.stack(outs, dim=1)
return y * 2
""",
        ("outs.append(h)", 'y = torch.einsum("tbd,btd->tb", torch.stack(outs), x).transpose(0, 1)'),
    ),
    "decoder": (
        """
h = torch.zeros(x.size(0), 4)
outs = []
for t in range(x.size(1)):
    h = torch.tanh(self.state(h) + self.bias)
    outs.append(F.gelu(self.gate(h)))
return torch.cat(outs, dim=1)
""",
        ("outs.append(h)", "F.gelu(self.gate(torch.stack(outs))).transpose(0, 1).flatten(1, 2)"),
    ),
}


@pytest.mark.parametrize("name", SUNK)
def test_what_only_feeds_outputs_leaves_a_recurrence(tmp_path: Path, name: str) -> None:
    body, parts = SUNK[name]
    assert_found(tmp_path, body, "sunk_from_loop", *parts)


@pytest.mark.parametrize(
    "old, new",
    [
        ("h = torch.tanh(self.state(h) + self.bias)", "h += self.bias"),
        ("h = torch.tanh(self.state(h) + self.bias)", "h = h.add_(self.bias)"),
        ("F.gelu(self.gate(h))", "F.gelu(self.gate(h) + h)"),
        ("F.gelu(self.gate(h))", "h"),
        ("F.gelu(self.gate(h))", "F.dropout(self.gate(h), 0.5)"),
        ("torch.cat(outs, dim=1)", "torch.cat(outs, dim=1) * len(outs)"),
    ],
)
def test_outputs_that_need_their_turn_stay(tmp_path: Path, old: str, new: str) -> None:
    body = SUNK["decoder"][0]
    assert old in body
    assert "sunk_from_loop" not in rewritten(tmp_path, body.replace(old, new))


LEFT_ALONE = {
    "a state alone": "h = torch.tanh(self.gate(h))",
    "break": "h = h + self.proj(x[:, t])\n    if t > 3:\n        break",
    "random": "h = h + F.dropout(x[:, t, :4], 0.5)",
    "in place": "x.mul_(1.5)\n    h = h * self.proj(x[:, t])",
    "written and read": "x[:, t] = x[:, t - 1] * 2\n    h = h * self.proj(x[:, t])",
    "another position": "h = h + self.proj(x[:, t - 1])",
    "index as number": "h = h + t",
    "read after": "y = self.proj(x[:, t])\n    h = h + y\nh = h * y",
    "view of the input": "h += x[:, t, :4].item() if t > 9 else 1.0",
    "unknown function": "h = h + self.proj(x[:, t] * float(x[0, t, 0]))",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_turns_need_is_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
h = torch.zeros(x.size(0), 4)
for t in range(x.size(1)):
    {LEFT_ALONE[name]}
return h
"""
    found = rewritten(tmp_path, body)
    assert "batched_loop" not in found
    if name != "read after":
        assert found == {}


LISTS_LEFT_ALONE = {
    "the list is read twice": "outs.append(self.proj(x[:, t]))|torch.stack(outs) * len(outs)",
    "only a view": "outs.append(x[:, t])|torch.stack(outs)",
    "of the batch": "outs.append(x[:, t] - x[:, t].mean())|torch.stack(outs)",
    "ragged": "outs.append(x[:, t, : t + 1].exp())|torch.cat(outs, 1)",
    "an earlier turn": "y = y + self.proj(x[:, t])\n    outs.append(y)|torch.stack(outs)",
}


@pytest.mark.parametrize("name", LISTS_LEFT_ALONE)
def test_lists_that_are_more_are_left_alone(tmp_path: Path, name: str) -> None:
    turn, join = LISTS_LEFT_ALONE[name].split("|")
    body = f"""
outs, y = [], 0
outs = []
for t in range(x.size(1)):
    {turn}
return {join}
"""
    assert "batched_loop" not in rewritten(tmp_path, body)


def test_a_sum_into_a_view_is_left_alone(tmp_path: Path) -> None:
    body = """
first = x[:, 0]
for t in range(x.size(1)):
    first += x[:, t] * 2
return first
"""
    assert rewritten(tmp_path, body) == {}


EXPERTS = """
tokens = x.reshape(-1, 5)
weight, chosen = torch.topk(torch.softmax(self.proj(tokens), -1), 2, dim=-1)
mask = F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
result = torch.zeros_like(tokens)
for expert in range(4):
    slot, token = torch.where(mask[expert])
    state = F.gelu(tokens[token] * self.bias[expert])
    result.index_add_(0, token, state * weight[token, slot, None])
return result
"""


def test_only_chosen_experts_are_visited(tmp_path: Path) -> None:
    assert_found(tmp_path, EXPERTS, "chosen_experts", "for expert in chosen.unique().tolist():")


@pytest.mark.parametrize(
    "old, new",
    [
        ("range(4)", "range(3)"),
        ("permute(2, 1, 0)", "permute(2, 1, 0)[:, :, :2]"),
        ("result.index_add_(0, token, ", "result.add_(token.numel() + 1).index_add_(0, token, "),
        ("return result", "return result + state.sum()"),
        ("(tokens[token]", "(F.dropout(tokens, 0.5)[token]"),
    ],
)
def test_experts_that_do_more_are_left_alone(tmp_path: Path, old: str, new: str) -> None:
    assert old in EXPERTS
    assert "chosen_experts" not in rewritten(tmp_path, EXPERTS.replace(old, new))


def test_experts_are_left_alone_in_training(tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(EXPERTS), experts.RULES, mode="train") == {}
