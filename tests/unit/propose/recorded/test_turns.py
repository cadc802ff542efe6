"""Turns that slide, repeat or call a helper: written once for all of them, or left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import loops
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, STEPS = 3, 12


def gram(one):
    c, n = one.size()
    flat = one.view(c, n)
    return torch.mm(flat, flat.t()) / (c * n)


def scaled(one, other, gain):
    out = F.softmax(one @ other, dim=-1)
    return out.sum(0) * gain


def noisy(one):
    return one + torch.rand_like(one)


def branching(one):
    if one.sum() > 0:
        return one * 2
    return one


class Model(nn.Module):
    def __init__(self, size=4, hop=2):
        super().__init__()
        self.size, self.hop, self.calls = size, hop, 0
        self.table = nn.Parameter(torch.randn(5, 6))

    def energy(self, one):
        out = (one @ self.table).square()
        return out.mean(dim=-1)

    def counted(self, one):
        self.calls += 1
        return one * self.calls

    def forward(self, x):
"""
END = """

def get_inputs():
    return [torch.randn(ROWS, STEPS, 5)]
"""
SIZES = ((3, 12), (1, 8), (5, 31))


GUARD = re.compile(
    r"if (self\.(size|hop|size - 1|size // 2) >=? 0|logs\.size\(1\) == targets|x\.size\(1\) > 3|"
    r"\(x\.size\(1\) - 1\) \* 2 \+ 5 <= wave)\b"
)


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def assert_found(tmp_path: Path, body: str, *parts: str) -> None:
    """Assert that no loop is left, but for sizes that are guarded, and that what is written is
    right for other sizes."""
    text = text_of(body)
    found = proposed(tmp_path, text, loops.RULES)
    assert len(found) == 1
    (new,) = found.values()
    assert "for " not in new or GUARD.search(new)
    for part in parts:
        assert part in new
    for rows, steps in SIZES:
        sized = f"ROWS, STEPS = {rows}, {steps}"
        assert_same(tmp_path, *(t.replace("ROWS, STEPS = 3, 12", sized) for t in (text, new)))


WINDOWS = {
    "context of each step": """
padded = F.pad(x, (0, 0, 1, 1))
out = []
for t in range(x.size(1)):
    out.append(padded[:, t : t + 3].reshape(x.size(0), 1, -1))
return torch.cat(out, dim=1)
""",
    "frames that hop": """
count = (x.shape[1] - self.size) // self.hop + 1
frames = []
for i in range(count):
    start = i * self.hop
    frames.append(x[:, start : start + self.size])
return torch.stack(frames, dim=1)
""",
    "averages that move": """
out = torch.zeros(x.size(0), x.size(1) - 3, 5)
for t in range(x.size(1) - 3):
    out[:, t] = x[:, t : t + 4].mean(dim=1)
return out
""",
    "frames of the last dimension": """
wave = x.transpose(1, 2)
count = (wave.size(-1) - self.size) // self.hop + 1
return torch.stack(
    [wave[..., self.hop * i : self.hop * i + self.size] for i in range(count)], dim=-2
)
""",
    "frames of a range with a step": """
frames = []
for start in range(0, x.shape[1] - self.size + 1, self.hop):
    frames.append(x[:, start : start + self.size] * 0.5)
return torch.stack(frames, dim=1)
""",
    "windows whose last start is named": """
signal = x.transpose(1, 2)
length = signal.size(-1)
last = length - self.size
return torch.stack([signal[..., s : s + self.size] for s in range(0, last + 1, self.hop)], -2)
""",
    "windows that leave the end out": """
out = []
for s in range(0, x.size(1) - 4, 3):
    piece = x[:, s : s + 4]
    out.append(piece - piece.mean(dim=1, keepdim=True))
return torch.stack(out, 2)
""",
    "spectra of frames": """
batch, length, _ = x.shape
wave = x.mean(2)
frames = []
for i in range(1 + (length - self.size) // self.hop):
    frame = wave[:, i * self.hop : i * self.hop + self.size]
    frames.append(torch.fft.rfft(frame * self.table[0, : self.size], dim=-1).abs() ** 2)
return torch.stack(frames, dim=-1)
""",
    "pieces between multiples": """
parts = []
for i in range(x.shape[1] // 4):
    parts.append((x[:, i * 4 : (i + 1) * 4] ** 2).mean(dim=1).sqrt())
return torch.stack(parts, dim=1)
""",
    "patches without overlap": """
parts = []
for i in range(x.size(1) // self.size):
    parts.append(x[:, i * self.size : i * self.size + self.size].amax(1))
return torch.stack(parts, 1)
""",
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_one_view(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, WINDOWS[name], ".unfold(")


ROLLING = {
    "means of what came before": """
out = torch.zeros_like(x)
for t in range(x.shape[1]):
    start = max(0, t - self.size + 1)
    out[:, t] = x[:, start : t + 1].mean(dim=1)
return out
""",
    "both sides, over the last dimension": """
wave = x.transpose(1, 2).contiguous()
steps = wave.size(2)
low, high, total = [], [], []
for t in range(steps):
    lo, hi = max(t - 2, 0), min(steps, t + 3)
    low.append(wave[..., lo:hi].amin(-1))
    high.append(wave[:, :, max(t - self.size, 0) : t + self.hop].amax(dim=2))
    total.append(wave[:, :, lo:hi].sum(2) / 5)
return torch.stack(low, -1), torch.stack(high, 2), torch.stack(total, -1)
""",
    "sums by their lengths": """
batch, frames, bins = x.shape
out = torch.zeros(batch, frames, bins)
for t in range(frames):
    start = max(0, t - self.size // 2)
    end = min(frames, t + self.size // 2 + 1)
    part = x[:, start:end, :]
    out[:, t, :] = x[:, t, :] - part.sum(dim=1) / (end - start)
return out
""",
    "of rows": """
row = x[0, :, 0] * 1
return torch.stack([row[max(0, i - 4) : min(i + 5, len(row))].mean() for i in range(len(row))])
""",
}


@pytest.mark.parametrize("name", ROLLING)
def test_windows_that_ends_cut_are_one_view(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, ROLLING[name], ".unfold(")


@pytest.mark.parametrize(
    "line", ["max(0, t - self.size + 1) : t + 1", "max(0, t - 2) : t + self.hop - 3"]
)
@pytest.mark.parametrize(("size", "hop"), [(-2, 1), (0, 2), (4, 5), (2, -1)])
def test_windows_of_no_size_are_what_they_were(
    tmp_path: Path, line: str, size: int, hop: int
) -> None:
    body = f"""
out = []
for t in range(x.size(1)):
    out.append(x[:, {line}].sum(1))
return torch.stack(out)
"""
    text = text_of(body)
    (new,) = proposed(tmp_path, text, loops.RULES).values()
    assert_same(
        tmp_path, *(one.replace("size=4, hop=2", f"size={size}, hop={hop}") for one in (text, new))
    )


@pytest.mark.parametrize(("size", "hop"), [(4, 0), (0, 2), (2, 5)])
def test_frames_that_do_not_hop_are_what_they_were(tmp_path: Path, size: int, hop: int) -> None:
    line = "x[:, i * self.hop : i * self.hop + self.size]"
    for body in (
        f"out = []\nfor i in range(3):\n    out.append({line})\nreturn torch.stack(out)",
        f"return torch.stack([{line} for i in range(3)], dim=1)",
    ):
        text = text_of(body)
        (new,) = proposed(tmp_path, text, loops.RULES).values()
        assert ".unfold(" in new
        sized = f"size={size}, hop={hop}"
        assert_same(tmp_path, *(one.replace("size=4, hop=2", sized) for one in (text, new)))


CUT = {
    "products": "out.append(x[:, max(0, t - 2) : t + 1].prod(1))",
    "another dimension": "out.append(x[:, max(0, t - 2) : t + 1].mean(0).sum(0))",
    "kept": "out.append(x[:, max(0, t - 2) : t + 1].mean(1, keepdim=True))",
    "a later start": "out.append(x[:, max(1, t - 2) : t + 2].mean(1))",
    "windows that grow twice as fast": "out.append(x[:, max(0, t - 2) : t + t + 1].mean(1))",
    "a number of the turn": (
        "lo = max(0, t - 2)\n    out.append(x[:, lo : t + 1].sum(1) * (t - lo))"
    ),
    "whole numbers": "out.append(x.long()[:, max(0, t - 2) : t + 1].sum(1))",
}


@pytest.mark.parametrize("over", ["x.size(1)", "x.size(1) - 3"])
@pytest.mark.parametrize("name", CUT)
def test_other_windows_that_ends_cut_are_left_alone(tmp_path: Path, name: str, over: str) -> None:
    line = CUT[name] if over == "x.size(1)" else "out.append(x[:, max(0, t - 2) : t + 1].mean(1))"
    body = f"out = []\nfor t in range({over}):\n    {line}\nreturn torch.stack(out)\n"
    assert proposed(tmp_path, text_of(body), loops.RULES) == {}


REPEATS = {
    "rows for beams": """
tiled, first = [], []
for i in range(x.size(0)):
    tiled.append(x[i : i + 1].repeat(self.size, 1, 1))
    first.append(x[i : i + 1, 0].repeat(self.size, 1))
return torch.cat(tiled, dim=0), torch.cat(first, dim=0)
""",
    "each row twice": """
out = []
for i in range(x.shape[0]):
    out.append(x[i].repeat(2, 1))
return torch.stack(out)
""",
}


@pytest.mark.parametrize("name", REPEATS)
def test_rows_are_repeated_at_once(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, REPEATS[name], ".repeat(1, ")


HELPERS = {
    "of a row": (
        "for i in range(x.size(0)):\n    out.append(gram(x[i]))\nreturn torch.stack(out)",
        "torch.vmap(gram)(x)",
    ),
    "of rows and what they share": (
        "for one in x:\n"
        "    out.append(scaled(one * 2, self.table, 3.0))\nreturn torch.stack(out, 1)",
        ")(x * 2, self.table, 3.0)",
    ),
    "of each step, by a method": (
        "for t in range(x.size(1)):\n"
        "    out.append(self.energy(x[:, t]))\nreturn torch.stack(out, dim=1)",
        "torch.vmap(self.energy)(x.transpose(0, 1))",
    ),
    "in a comprehension": (
        "return torch.stack([gram(x[i]) for i in range(x.size(0))])",
        "torch.vmap(gram)(x)",
    ),
}


@pytest.mark.parametrize("name", HELPERS)
def test_helpers_are_mapped_over_turns(tmp_path: Path, name: str) -> None:
    body, part = HELPERS[name]
    assert_found(tmp_path, body if body.startswith("return") else f"out = []\n{body}", part)


COUNTED = {
    "the longest of some lengths": "int(lengths.max())",
    "the longest but for the end": "lengths.max().item() - 2",
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_number_that_is_read_from_a_tensor_is_counted_to(tmp_path: Path, name: str) -> None:
    body = f"""
lengths = x[:, 0, 0].abs().long() + 5
h = torch.zeros_like(x[:, 0])
for t in range({COUNTED[name]}):
    h = h * 0.5 + (x[:, t] * 2).tanh()
return h
"""
    text = text_of(body)
    new = proposed(tmp_path, text, loops.RULES)["hoisted_from_loop"]
    assert f"count = max({COUNTED[name]}, 0)" in new and "x[:, :count] * 2" in new
    for rows in (1, 3, 8):
        sized = f"ROWS, STEPS = {rows}, 12"
        assert_same(tmp_path, *(t.replace("ROWS, STEPS = 3, 12", sized) for t in (text, new)))


@pytest.mark.parametrize(
    "line", ["outs.append(h * x[:, t])", "outs.append(h.exp())\n    lengths = lengths - 1"]
)
@pytest.mark.parametrize("over", ["int(lengths.max())", "int(torch.randint(3, 5, ()))"])
def test_numbers_that_loops_may_not_count_to(tmp_path: Path, line: str, over: str) -> None:
    body = f"""
lengths = x[:, 0, 0].abs().long() + 5
h, outs = torch.zeros_like(x[:, 0]), []
for t in range({over}):
    h = (h * 0.5).cumsum(-1) + x[:, t].sort()[0].unique_consecutive()[: h.size(1)]
    {line}
return torch.stack(outs)
"""
    found = proposed(tmp_path, text_of(body), loops.RULES)
    assert "count" not in "".join(found.values())


NUMBERS = {
    "rows that roll": """
by = x[:, 0, 0].mul(9).long()
out = []
for i in range(x.size(0)):
    out.append(torch.roll(x[i], int(by[i]), dims=0))
return torch.stack(out)
""",
    "rows that roll along columns": """
by = x[:, 0, 0].mul(9).long()
out = []
for i, row in enumerate(x):
    out.append(row.roll(by[i].item(), -1))
return torch.stack(out, dim=1)
""",
    "one class after the other": """
ids = x[..., 0].mul(2).long()
out = []
for c in range(4):
    out.append((ids == c).float())
return torch.stack(out, dim=-1)
""",
    "powers": """
total = torch.zeros_like(x)
for k in range(1, 5):
    total = total + x ** (k + 1) / k
return total
""",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_turns_are_tensors(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, NUMBERS[name], "torch.arange(")


DISTRIBUTIONS = {
    "a normal one of each step": (
        """
out = []
for t in range(x.size(1)):
    dist = torch.distributions.Normal(x[:, t], x[:, t].exp())
    out.append(dist.log_prob(x[:, t] * 2).sum(-1) + dist.entropy().mean(-1))
return torch.stack(out)
""",
        "distribution.entropy().mean(",
    ),
    "classes of each row": (
        """
taken = x[..., 0].gt(0).long()
out, bonus = [], []
for i in range(x.size(0)):
    m = torch.distributions.Categorical(logits=x[i])
    out.append(m.log_prob(taken[i]))
    bonus.append(m.entropy().mean())
return torch.stack(out) + torch.stack(bonus)[:, None]
""",
        "torch.distributions.Categorical(logits=x)",
    ),
    "a shared scale, in a comprehension": (
        """
scale = self.table[0, :5].abs()
return torch.stack([torch.distributions.Laplace(m, scale).log_prob(m + 1) for m in x], dim=1)
""",
        "torch.distributions.Laplace(x, scale).log_prob(x + 1)",
    ),
    "samples of more dimensions": (
        """
out = []
total = torch.zeros(x.size(0))
for t in range(x.size(1)):
    out.append(torch.distributions.Normal(x[0, t], 1.0).log_prob(x[:, t : t + 1]))
    total = total + torch.distributions.Normal(x[0, t], x[0, t].exp()).log_prob(x[:, t]).sum(1)
return torch.stack(out), total
""",
        ".log_prob(x)",
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_of_turns_are_one(tmp_path: Path, name: str) -> None:
    body, part = DISTRIBUTIONS[name]
    assert_found(tmp_path, body, part)


DRAWN = {
    "a sample": "out.append(torch.distributions.Normal(x[:, t], 1.0).sample())",
    "a sample's probability": (
        "d = torch.distributions.Normal(x[:, t], 1.0)\n    out.append(d.log_prob(d.sample()))"
    ),
    "a wider scale": "out.append(torch.distributions.Normal(x[0, t], x.exp()).log_prob(x))",
    "samples of fewer dimensions": (
        "out.append(torch.distributions.Normal(x[:, t], 1.0).log_prob(x[0, t]))"
    ),
    "a distribution of vectors": (
        "d = torch.distributions.MultivariateNormal(x[:, t], torch.eye(5))\n"
        "    out.append(d.log_prob(x[:, t]))"
    ),
    "a class of the checkout": "out.append(Normal(x[:, t]).log_prob(x[:, t]))",
}


@pytest.mark.parametrize("name", DRAWN)
def test_distributions_that_differ_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out = []
for t in range(x.size(1)):
    {DRAWN[name]}
return torch.stack(out)
"""
    helper = """
class Normal:
    def __init__(self, mean):
        self.mean = mean

    def log_prob(self, one):
        return (one - self.mean) * one.sum()


class Model"""
    text = text_of(body).replace("class Model", helper.lstrip())
    assert proposed(tmp_path, text, loops.RULES) == {}


WHOLE = {
    "rows from the other end": (
        """
out, gain = x.clone(), x[:, 0, 0]
for i in range(x.shape[0]):
    j = x.shape[0] - i - 1
    out[i] = x[i] * gain[i] + x[j] * (1 - gain[x.shape[0] - 1 - i])
return out
""",
        ".flip(0)",
    ),
    "steps from the other end": (
        """
steps = x.size(1)
out = []
for t in range(steps):
    out.append(x[:, t] - x[:, steps - 1 - t])
return torch.stack(out, 1)
""",
        "x.flip(1)",
    ),
    "factors of a matrix": (
        """
out = []
for i in range(x.size(0)):
    k = torch.mm(x[i].t(), x[i]) + torch.eye(5)
    root = torch.linalg.cholesky(k)
    out.append(torch.cholesky_solve(self.table, root))
return torch.stack(out)
""",
        "torch.linalg.cholesky(",
    ),
    "products of batches": (
        """
out = []
for t in range(x.size(1)):
    z = F.normalize(x[:, t, :], dim=1)
    out.append(torch.bmm(z.unsqueeze(1), x[:, 0].unsqueeze(2)).squeeze(2))
return torch.cat(out, dim=1)
""",
        " @ ",
    ),
    "pairs for a helper": (
        """
other = x.flip(1)
return torch.stack([scaled(a, b.t(), 2.0) for a, b in zip(x, other)])
""",
        "torch.vmap(scaled",
    ),
    "bins between edges": (
        """
flat, edges = x.flatten(), torch.linspace(-2, 2, 9)
counts = []
for low, high in zip(edges[:-1], edges[1:]):
    counts.append(((flat >= low) & (flat < high)).float().sum())
return torch.stack(counts)
""",
        "[:, None]",
    ),
    "rows of each class": (
        """
labels = (x[:, 0, 0] > 0).long() * 3
classes = torch.unique(labels)
means = []
for c in classes:
    means.append(x[labels == c].mean(0))
return torch.stack(means)
""",
        "torch.searchsorted(classes, labels)",
    ),
    "losses of their lengths": (
        """
logs, targets = x.log_softmax(-1), x.argmin(-1)
lengths = x[:, 0, 0].gt(0).long() * 2 + 1
targets[0, 3:] = 99
total = 0.0
for i in range(x.size(0)):
    n = lengths[i].item()
    total = total + F.nll_loss(logs[i, :n], targets[i, :n], reduction="sum") / n
    total = total + F.cross_entropy(logs[i, :n], targets[i, :n])
return total
""",
        "torch.where(",
    ),
    "windows that overlap": (
        """
out, count = torch.zeros_like(x), torch.zeros_like(x)
for s in range(0, x.shape[1] - self.size + 1, self.hop):
    out[:, s : s + self.size] += x[:, s : s + self.size] * 2
    count[:, s : s + self.size] += 1
return out / count.clamp(min=1)
""",
        ".index_add_(",
    ),
    "frames that are added up": (
        """
wave = torch.zeros(x.size(0), 2 * x.size(1) + 3)
for i in range(x.size(1)):
    wave[:, i * 2 : i * 2 + 5] += x[:, i]
return wave
""",
        ".index_add_(",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_turns_are_one_operation(tmp_path: Path, name: str) -> None:
    body, part = WHOLE[name]
    assert_found(tmp_path, body, part)


ADDED = {
    "a number for all": "out[:, s : s + 4] += x[:, s : s + 1]",
    "windows that grow": "out[:, s : s + s + 1] += x[:, : s + 1]",
    "a tensor that is read": "out[:, s : s + 4] += out[:, s + 1 : s + 5]",
    "a product": "out[:, s : s + 4] *= x[:, s : s + 4]",
}


@pytest.mark.parametrize("name", ADDED)
def test_other_sums_of_windows_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out = torch.zeros(x.size(0), x.size(1) + 4, 5)
for s in range(x.size(1) - 4):
    {ADDED[name]}
return out
"""
    assert "index_add_" not in str(proposed(tmp_path, text_of(body), loops.RULES))


def test_parts_of_classes_that_unique_lists_stay_in_the_loop(tmp_path: Path) -> None:
    body = """
labels = (x[:, 0, 0] > 0).long()
classes = torch.unique(labels)
total = torch.zeros(())
for c in classes:
    own = x[labels == c]
    total = torch.tanh(total + own.prod(0).sum())
return total
"""
    rules = RecordedRewrites(rules=loops.RULES)
    noticed = rules.noticed(*problem_and_recording(tmp_path, text_of(body)))
    assert noticed.failures == ()


def test_labels_that_are_written_after_unique_are_left_alone(tmp_path: Path) -> None:
    body = """
labels = (x[:, 0, 0] > 0).long()
classes = torch.unique(labels)
labels = labels * 2
out = []
for c in classes:
    out.append(x[labels == c].sum(0))
return torch.stack(out)
"""
    assert "searchsorted" not in str(proposed(tmp_path, text_of(body), loops.RULES))


LEFT = {
    "a roll of all dimensions": "out.append(torch.roll(x[:, t], int(x[0, t, 0])))",
    "a number beside small ones": "out.append(x[:, t].int() * t)",
    "a number that is bound again": "t = t + 1\n    out.append(x[:, t] * 2)",
    "a number that chooses": "out.append(x[:, t, :2] if t % 2 else x[:, t, 1:3])",
    "windows that grow": "out.append(x[:, t : t + t + 1].sum(1))",
    "windows with steps": "out.append(x[:, t : t + 4 : 2].sum(1))",
    "windows from a later position": "out.append(x[:, t + 1 : t + 3].sum(1))",
    "spectra over rows": "out.append(torch.fft.fft(x[:, t], dim=0).abs())",
    "a helper that draws numbers": "out.append(noisy(x[:, t]))",
    "a helper that branches on its values": "out.append(branching(x[:, t]))",
    "a method that counts its calls": "out.append(self.counted(x[:, t]))",
    "a helper that gets the turn's number": "out.append(scaled(x[:, t], self.table, t))",
}


@pytest.mark.parametrize("name", LEFT)
def test_turns_that_differ_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out = []
for t in range(x.size(1) - 4):
    {LEFT[name]}
return torch.stack(out)
"""
    assert proposed(tmp_path, text_of(body), loops.RULES) == {}


def test_a_loop_of_many_turns_is_found(tmp_path: Path) -> None:
    body = """
out = torch.zeros(x.size(0), x.size(2))
for i in range(x.size(0)):
    out[i] = overlap(x[i, 0], self.table.t())
return out
"""
    helper = """
def overlap(one, others):
    low, high = torch.maximum(one, others), torch.minimum(one + 1, others + 1)
    common = torch.clamp(high - low, min=0) * torch.clamp(1 + high - low, min=0)
    total = (one * 2 + others * 2 - common).abs()
    return (common * 3 / (total + 1e-3) - common / (2 + total)).sum(0)


class Model"""
    text = text_of(body).replace("ROWS, STEPS = 3, 12", "ROWS, STEPS = 300, 2")
    text = text.replace("class Model", helper.lstrip())
    found = proposed(tmp_path, text, loops.RULES)
    assert list(found) == ["batched_loop"] and "torch.vmap(overlap" in found["batched_loop"]
    assert_same(tmp_path, text, found["batched_loop"])


STARTS = {
    "pieces of which the last may be shorter": "range(0, x.size(1), 4)",
    "a length of another tensor": "range(0, self.table.size(0) - 3, 2)",
    "a length before it was padded": "range(0, length - 3, 2)",
    "a later start": "range(1, x.size(1) - 3, 2)",
    "one position too many": "range(0, x.size(1) - 2, 4)",
}


@pytest.mark.parametrize("name", STARTS)
def test_windows_that_may_be_cut_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
length = x.size(1)
x = F.pad(x, (0, 0, 0, 4))
out = []
for s in {STARTS[name]}:
    out.append(x[:, s : s + 4].sum(1))
return torch.stack(out)
"""
    assert proposed(tmp_path, text_of(body), loops.RULES) == {}


NO_TURNS = {
    "windows that are written": """
out = torch.zeros_like(x)
for t in range(x.size(1) - self.size + 1):
    out[:, t] = x[:, t : t + self.size].sum(1)
return out
""",
    "windows that hop": """
out = torch.zeros_like(x)
for i in range((x.shape[1] - self.size) // self.hop + 1):
    out[:, i] = x[:, i * self.hop : i * self.hop + self.size].mean(1)
return out
""",
    "windows that are added up": """
total = torch.zeros(x.size(0), 5)
for t in range(x.size(1) - 3):
    total += x[:, t : t + 4].amax(1)
return total
""",
    "windows in a sum": """
return 0 + x.new_zeros(1) + sum(x[:, t : t + 4].sum(1) for t in range(x.size(1) - 3))
""",
    "windows that make a tensor grow": """
out = x[:, :1]
for t in range(x.size(1) - 3):
    out = torch.cat([out, x[:, t : t + 4].sum(1, keepdim=True)], dim=1)
return out
""",
    "windows of which the last ones are cut": """
total = torch.zeros(x.size(0), 5)
for t in range(9):
    total = total + x[:, t : t + 4].sum(1)
return total
""",
    "cut windows of a list": "return torch.stack([x[:, t : t + 4].sum(1) for t in range(9)])",
    "sums into windows": """
out, count = torch.zeros_like(x), torch.zeros_like(x)
for s in range(0, x.shape[1] - self.size + 1, self.hop):
    out[:, s : s + self.size] += x[:, s : s + self.size] * 2
    count[:, s : s + self.size] += 1
return out / count.clamp(min=1)
""",
    "counts of cut windows": """
count = torch.zeros(x.size(1))
for s in range(9):
    count[s : s + self.size] += 1
return count
""",
    "rows of another tensor": """
other = torch.cat([x, x], 1) * 2
total = torch.zeros(x.size(0), 5)
for t in range(x.size(1) - 4):
    total = total + other[:, t].exp()
return total
""",
    "rows of another tensor that are written": """
other = torch.cat([x, x], 1) * 2
out = torch.zeros_like(other)
for t in range(x.size(1) - 4):
    out[:, t] = other[:, t + 1].exp()
return out
""",
    "numbers of turns": """
total = torch.zeros(x.size(0), 5)
for t in range(x.size(1) - 4):
    total = total + x[:, t] * t
return total
""",
    "numbers of turns from the second on": """
total = torch.zeros(x.size(0), 5)
for t in range(1, x.size(1)):
    total = total + x[:, t] * t
return total
""",
    "a size that the others give": """
total = torch.zeros(x.size(0), 5)
for t in range(x.size(1)):
    total = total + x[:, t].reshape(-1, 5).exp()
return total
""",
    "batches that are one": """
total = torch.zeros(1)
for t in range(x.size(1)):
    total = total + F.avg_pool1d(x[:, t][:, None], 5).sum()
return total
""",
    "a number in each turn": """
total = torch.zeros(x.size(0), 5)
for t in range(x.size(1) - 4):
    total = total + x[:, t] + 3
return total
""",
}


@pytest.mark.parametrize("name", NO_TURNS)
def test_sizes_without_turns_are_what_they_were(tmp_path: Path, name: str) -> None:
    text = text_of(NO_TURNS[name])
    (new,) = proposed(tmp_path, text, loops.RULES).values()
    for steps in (0, 1, 3, 4, 31):
        for size in ("size=4, hop=2", "size=20, hop=3"):
            sized = [
                one.replace("ROWS, STEPS = 3, 12", f"ROWS, STEPS = 3, {steps}")
                for one in (text.replace("size=4, hop=2", size), new.replace("size=4, hop=2", size))
            ]
            assert_same(tmp_path, *sized)


@pytest.mark.parametrize(
    "line", ["labels[0] = 9", "labels.sub_(1)", "labels[1:].fill_(2)", "classes[0] = 2"]
)
def test_classes_that_are_changed_in_place_are_left_alone(tmp_path: Path, line: str) -> None:
    body = f"""
labels = (x[:, 0, 0] > 0).long() * 3
classes = torch.unique(labels)
{line}
out = []
for c in classes:
    out.append(x[labels == c].sum(0))
return torch.stack(out)
"""
    assert "searchsorted" not in str(proposed(tmp_path, text_of(body), loops.RULES))
