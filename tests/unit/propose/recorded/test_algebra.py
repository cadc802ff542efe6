"""Rules about one-hot matrices, pairs, nearest codes and constant kernels: what they find, what
they leave alone, and that the new code computes the same."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import filters, lookups, pairs, targets, triplets
from tests.unit.propose.recorded.rig import assert_same, outputs, proposed

RULES = (*filters.RULES, *lookups.RULES, *pairs.RULES, *targets.RULES)
ROWS = "torch.randn(48, 12), torch.randn(32, 12), torch.randint(0, 12, (48,))"


def model(forward: str, inputs: str = ROWS, arguments: str = "x, y, t", init: str = "") -> str:
    body = textwrap.indent(textwrap.dedent(forward).strip(), "        ")
    made = textwrap.indent(textwrap.dedent(init).strip(), "        ")
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.number, self.smoothing, self.dim = 12, 0.1, -1\n{made}\n"
        f"    def forward(self, {arguments}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


FOUND = {
    "nearest_code": (
        (
            """
            d = x.pow(2).sum(1, keepdim=True) + y.pow(2).sum(1) - 2 * torch.matmul(x, y.t())
            return torch.argmin(d, dim=-1)
            """,
            "d = torch.addmm(y.pow(2).sum(1), x, y.t(), alpha=-2)",
        ),
        (
            """
            square = torch.sum(x**2, dim=1, keepdim=True)
            d = square - 2 * x @ y.t() + torch.sum(y**2, dim=1, keepdim=True).t()
            return d.min(1)[1]
            """,
            "torch.addmm(torch.sum(y**2, dim=1, keepdim=True).t(), x, y.t(), alpha=-2)",
        ),
        (
            """
            d = torch.addmm(x.square().sum(1, keepdim=True) + y.square().sum(1), x, y.T, alpha=-2.0)
            _, index = torch.min(d, dim=1)
            return index
            """,
            "torch.addmm(y.square().sum(1), x, y.T, alpha=-2.0)",
        ),
        (
            """
            d = (y**2).sum(1) - 2 * torch.einsum("bd,nd->bn", x, y) + (x**2).sum(1)[:, None]
            return (-d).argmax(dim=1) + d.argmin(dim=1)
            """,
            None,
        ),
    ),
    "one_hot_lookup": (
        (
            """
            index = torch.argmax(x, dim=1)
            return F.one_hot(index, y.shape[0]).float() @ y
            """,
            "return F.embedding(index, y)",
        ),
        (
            """
            index = x.argmax(dim=1, keepdim=True)
            codes = torch.zeros(x.shape[0], y.shape[0], device=x.device)
            codes.scatter_(1, index, 1)
            return torch.matmul(codes, y)
            """,
            "return F.embedding(index.squeeze(1), y)",
        ),
        (
            """
            codes = F.one_hot(t, y.shape[0]).float()
            return codes @ y, codes.mean(0)
            """,
            "return F.embedding(t, y), (y.new_zeros(y.shape[0]).index_add_(",
        ),
        (
            """
            index = torch.argmin(torch.cdist(x, y), dim=1).unsqueeze(1)
            codes = torch.zeros(index.shape[0], y.shape[0], device=x.device)
            codes.scatter_(1, index, 1)
            found = torch.matmul(codes, y)
            often = torch.mean(codes, dim=0)
            return found, torch.exp(-torch.sum(often * torch.log(often + 1e-10)))
            """,
            "0, index.squeeze(1), y.new_ones(index.shape[0]) ) / index.shape[0])",
        ),
        (
            """
            codes = F.one_hot(t, y.shape[0]).float()
            return codes @ y, codes.mean(0), codes
            """,
            "return F.embedding(t, y), codes.mean(0), codes",
        ),
        (
            """
            codes = F.one_hot(t, y.shape[0]).half()
            return codes @ y.half(), codes.sum(0)
            """,
            "return F.embedding(t, y.half()), codes.sum(0)",
        ),
        (
            """
            codes = torch.zeros(x.shape[0], y.shape[0])
            codes.scatter_(1, t[:, None], 0.5)
            return codes @ y
            """,
            None,
        ),
        (
            """
            codes = torch.zeros(x.shape[0], y.shape[0])
            codes.scatter_(1, torch.stack([t, t + 1], 1), 1)
            return codes @ y
            """,
            None,
        ),
    ),
    "pair_distances": (
        (
            "return ((x[:, None] - y[None]) ** 2).sum(-1)",
            "return torch.cdist(x, y).square()",
        ),
        (
            """
            d = y.unsqueeze(0) - x.unsqueeze(1)
            return torch.sqrt(torch.sum(d * d, dim=2))
            """,
            "return torch.cdist(x, y)",
        ),
        ("return (x[:, None, :] - y[None, :, :]).norm(dim=-1)", "return torch.cdist(x, y)"),
        ("return ((x[:, None] - y[None]) ** 2).sum(0)", None),
        ("return ((x[:, None] - y[None]) ** 3).sum(-1)", None),
        ("return (x[:, None] - y[None]).norm(p=1, dim=-1)", None),
        ("d = x[:, None] - y[None]\nreturn (d**2).sum(-1), d", None),
        ("return ((x[:8, None] - y[:8].unsqueeze(1)) ** 2).sum(-1)", None),
    ),
    "pair_cosines": (
        (
            "return F.cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=-1)",
            "F.normalize(x, dim=-1, eps=1e-8) @ F.normalize(y, dim=-1, eps=1e-8).mT",
        ),
        ("return F.cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=2, eps=0.1)", None),
        ("return F.cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=0)", None),
    ),
    "broadcast_product": (
        ("return (x[:, None] * y[None]).sum(-1)", "return x @ y.mT"),
        ("return 2 * (x[:, :, None] * y.t()[None]).sum(1)", "return 2 * (x @ y.t())"),
        ("return (x[:, 0].unsqueeze(-1) * x).sum(0)", "return x[:, 0] @ x"),
        ("return (x[:, None] * y[None]).sum(0)", None),
        ("p = x[:, None] * y[None]\nreturn p.sum(-1) + p.amax(-1)", None),
    ),
    "one_hot_selection": (
        (
            """
            hot = F.one_hot(t, self.number).float()
            return -(hot * F.log_softmax(x, dim=1)).sum(dim=1).mean()
            """,
            "return F.cross_entropy(x, t)",
        ),
        (
            """
            hot = F.one_hot(t, self.number).float()
            loss = -(hot * F.log_softmax(x, dim=1)).sum(dim=1)
            return loss * 2
            """,
            'loss = F.cross_entropy(x, t, reduction="none")',
        ),
        (
            """
            hot = torch.zeros_like(x).scatter_(1, t.unsqueeze(1), 1.0)
            return torch.sum(-hot * torch.log_softmax(x, 1)) / x.size(0)
            """,
            'return F.cross_entropy(x, t, reduction="sum") / x.size(0)',
        ),
        (
            """
            mask = x.new_zeros(x.size(0), x.size(1))
            ids = t.view(-1, 1)
            mask.scatter_(1, ids, 1.0)
            return (x.softmax(1) * mask).sum(1)
            """,
            "return x.softmax(1).gather(1, ids).squeeze(1)",
        ),
        ("return (F.one_hot(t, 12) * x).sum(0)", None),
        ("hot = F.one_hot(t, 12).float()\nreturn (hot * x).sum(1), hot", None),
        (
            """
            hot = F.one_hot(t, 12).float()
            if x.size(0) > 4:
                return (hot * x).sum(1)
            return hot.sum(1)
            """,
            None,
        ),
    ),
    "label_smoothing": (
        (
            """
            hot = F.one_hot(t, 12).float()
            soft = hot * (1 - self.smoothing) + self.smoothing / x.size(1)
            return -(soft * F.log_softmax(x, dim=1)).sum(1)
            """,
            'F.cross_entropy(x, t, reduction="none", label_smoothing=self.smoothing)',
        ),
        (
            """
            soft = F.one_hot(t, 12).float() * (1 - self.smoothing) + self.smoothing / 11
            return -(soft * F.log_softmax(x, dim=1)).sum(1)
            """,
            None,
        ),
    ),
    "two_valued_weights": (
        (
            """
            x = x.log_softmax(dim=-1)
            with torch.no_grad():
                dist = torch.zeros_like(x)
                dist.fill_(self.smoothing / (self.number - 1))
                dist.scatter_(1, t.data.unsqueeze(1), 1 - self.smoothing)
            return torch.mean(torch.sum(-dist * x, dim=-1))
            """,
            "x = x.log_softmax(dim=-1) return torch.mean( -sum_of_two( x, t.data.unsqueeze(1), "
            "self.smoothing / (self.number - 1), 1 - self.smoothing, 1, ), )",
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return (x * dist).sum(dim=self.dim)
            """,
            "return sum_of_two(x, t.view(-1, 1), 0.25, 2.0, self.dim)",
        ),
        (
            """
            dist = torch.full_like(x, 0.25)
            with torch.no_grad():
                dist.scatter_(1, t.view(-1, 1), 2.0)
            return (x * dist).sum(1)
            """,
            "self, x, y, t): return 0.25 * x.sum(1) + (2.0 - 0.25) * x.gather",
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return (x * dist).sum(1)
            """,
            "return 0.25 * x.sum(1) + (2.0 - 0.25) * x.gather(1, t.view(-1, 1)).squeeze(1)",
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 0.1)
            return (x * dist).sum(1)
            """,
            "return sum_of_two(x, t.view(-1, 1), 0.25, 0.1, 1)",
        ),
        (
            """
            dist = torch.full_like(x.half(), 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return (x.half() * dist).sum(1)
            """,
            None,
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return (x * dist).sum(1), dist
            """,
            None,
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            dist[:, 0] = 0
            return (x * dist).sum(1)
            """,
            None,
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return (x * dist).sum(0)
            """,
            None,
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 2), 2.0)
            return (x[:24] * dist[:24]).sum(1)
            """,
            None,
        ),
        (
            """
            x = F.log_softmax(x, dim=-1)
            dist = x.data.clone()
            dist.fill_(self.smoothing / (self.number - 1))
            dist.scatter_(1, t.data.unsqueeze(1), 1 - self.smoothing)
            return F.kl_div(x, dist.clone().detach(), reduction="sum") / x.size(0)
            """,
            "return kl_of_two( x, t.data.unsqueeze(1), self.smoothing / (self.number - 1), "
            "1 - self.smoothing, ).sum() / x.size(0)",
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return F.kl_div(x.log_softmax(1), dist, reduction="batchmean")
            """,
            "return kl_of_two(x.log_softmax(1), t.view(-1, 1), 0.25, 2.0).mean()",
        ),
        (
            """
            with torch.no_grad():
                ignore = t == 3
                dist = torch.full_like(x, 0.25)
                dist.scatter_(1, t.unsqueeze(1), 2.0)
            kl = F.kl_div(x.log_softmax(1), dist, reduction="none")
            return kl.masked_fill(ignore[:, None], 0).sum() / (~ignore).sum()
            """,
            "return kl_of_two( x.log_softmax(1), t.unsqueeze(1), 0.25, 2.0 "
            ").masked_fill(ignore, 0).sum() / (~ignore).sum()",
        ),
        (
            """
            dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
            return F.kl_div(x.log_softmax(1), dist, reduction="none").sum(1)
            """,
            "return kl_of_two(x.log_softmax(1), t.view(-1, 1), 0.25, 2.0)",
        ),
        *(
            (
                f"""
                dist = torch.full_like(x, 0.25).scatter_(1, t.view(-1, 1), 2.0)
                {line}
                """,
                None,
            )
            for line in (
                "return F.kl_div(x.log_softmax(1), dist, reduction='none')",
                "return F.kl_div(x.log_softmax(1), dist, reduction='none').sum(0)",
                "return F.kl_div(x, dist, reduction='sum', log_target=True)",
                "return F.kl_div(x, dist, reduction=['sum', 'mean'][t.dim() - 1])",
                "dist[:, 0] = 0; return F.kl_div(x.log_softmax(1), dist, reduction='sum')",
                "return F.kl_div(x.log_softmax(1), dist, reduction='sum') + dist.sum()",
                "return F.kl_div(x.double(), dist, reduction='sum')",
            )
        ),
    ),
    "box_filter": (
        (
            """
            k = torch.ones(3, 1, self.size, self.size) / (self.size * self.size)
            return F.conv2d(x, k, groups=3)
            """,
            "F.conv2d(x, k.sum(2, keepdim=True), groups=3), k.sum(3, keepdim=True), groups=3",
        ),
        ("return F.conv2d(x, self.kernel, groups=3)", None),
        ("k = torch.ones(3, 1, 9, 9) / 81\nreturn F.conv2d(x, k, groups=3)", None),
        ("k = torch.ones(3, 1, 9, 9) / 9\nreturn F.conv2d(x, k, groups=3)", None),
    ),
}

OUTER = """
    line = torch.softmax(torch.arange(9.0) * self.size, 0)
    other = torch.arange(9.0) / 9
    {}
    return F.conv2d({})
"""
FOUND["separable_filter"] = (
    *(
        (OUTER.format(kernel, convolution), expected)
        for kernel, convolution, expected in (
            (
                "k = torch.mm(line[:, None], other[None, :]).expand(x.size(1), 1, 9, 9)",
                "x, k, groups=x.size(1)",
                "F.conv2d(x, other.expand(x.size(1), 1, 1, -1), groups=x.size(1)), "
                "line[:, None].expand(x.size(1), 1, -1, -1), groups=x.size(1)",
            ),
            (
                "k = (line[None] * other.unsqueeze(1))[None, None].repeat(3, 1, 1, 1)",
                "x, k, padding=8 // 2, groups=3",
                None,  # two dimensions are added at once
            ),
            (
                "k = (line[None] * other.unsqueeze(1))[None].unsqueeze(0).repeat(3, 1, 1, 1)",
                "x, k, padding=8 // 2, groups=3",
                "line.expand(3, 1, 1, -1), padding=(0, 8 // 2), groups=3",
            ),
            (
                "k = torch.outer(line, other).expand(3, 1, -1, -1)",
                "x, k, groups=3",
                "line[:, None].expand(3, 1, -1, -1), groups=3",
            ),
            ("k = torch.outer(line, other).expand(3, 1, 9, 9)", "x, k, groups=self.three", None),
            ("k = torch.outer(line, other).repeat(3, 1, 1, 2)", "x, k, groups=3", None),
            (
                "k = torch.outer(line, other).expand(3, 1, 9, 9)",
                "x, k, x[0, :, 0, 0], groups=3",
                None,
            ),
            ("k = torch.outer(line, other).expand(3, 1, 9, 9)", "x, k, stride=2, groups=3", None),
            ("k = torch.outer(line, other).expand(3, 1, 9, 9) + 1", "x, k, groups=3", None),
            (
                "k = torch.outer(line, other)\n    k[0] = 1\n    k = k.expand(3, 1, 9, 9)",
                "x, k, groups=3",
                None,
            ),
            (
                "k = torch.outer(line, other).expand(3, 1, 9, 9)\n    line = other",
                "x, k, groups=3",
                None,
            ),
            (
                "k = torch.outer(line, other)\n    if self.size == 9:\n"
                "        k = torch.outer(other, line)\n    k = k.expand(3, 1, 9, 9)",
                "x, k, groups=3",
                None,
            ),
            (
                "k = torch.outer(line[:3], other[:3]).expand(3, 1, 3, 3)",
                "x, k, groups=3",
                None,
            ),
        )
    ),
)


@pytest.mark.parametrize("name", FOUND)
def test_rules_find_their_forms_and_no_others(tmp_path: Path, name: str) -> None:
    for forward, expected in FOUND[name]:
        if name in ("box_filter", "separable_filter"):
            init = "self.size, self.three = 9, 3\n"
            init += "self.register_buffer('kernel', torch.ones(3, 1, 9, 9) / 81)"
            text = model(forward, "torch.randn(2, 3, 20, 20)", "x", init)
        else:
            text = model(forward)
        new = proposed(tmp_path, text, RULES).get(name)
        if expected is None:
            assert new is None, forward
            continue
        assert new is not None, forward
        assert expected in " ".join(new.replace("( ", "(").split()), new
        assert_same(tmp_path, text, new)


HELPERS = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


def box(size, x):
    return torch.ones(1, size, size, dtype=x.dtype) / (size * size)


def smooth(x, kernel):
    c = x.shape[1]
    kernel = kernel[:, None].expand(c, -1, -1, -1)
    return F.conv2d(x, kernel, groups=c) + 1


class Model(nn.Module):
    def forward(self, x):
        return CALL


def get_inputs():
    return [torch.randn(2, 3, 20, 20)]
"""


def test_a_helper_that_gets_a_box_is_copied_for_it(tmp_path: Path) -> None:
    text = HELPERS.replace("CALL", "smooth(x, box(9, x))")
    new = proposed(tmp_path, text, filters.RULES)["box_filter"]
    assert "return box_smooth(x, box(9, x))" in new
    assert "return F.conv2d(x, kernel, groups=c) + 1" in new  # others may call it
    assert_same(tmp_path, text, new)


SMOOTHED = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.smoothing = 0.1

    def forward(self, x, t):
        dist = torch.full_like(x, self.smoothing / 3)
        dist.scatter_(1, t.unsqueeze(1), 1 - self.smoothing)
        return RESULT


def get_inputs():
    x = torch.randn(8, 4)
    return [x.log_softmax(1), torch.randint(0, 4, (8,))]
"""


@pytest.mark.parametrize("smoothing", ["0.1", "0.75", "0.9", "0.0", "1.0", "1.2"])
@pytest.mark.parametrize(
    "result", ["(x * dist).sum(1)", "F.kl_div(x, dist, reduction='none').sum(1)"]
)
def test_smoothed_labels_keep_infinite_log_probabilities(
    tmp_path: Path, result: str, smoothing: str
) -> None:
    text = SMOOTHED.replace("RESULT", result)
    (new,) = proposed(tmp_path, text, targets.RULES).values()
    assert "scatter_" not in new
    old, new = (
        one.replace("self.smoothing = 0.1", f"self.smoothing = {smoothing}").replace(
            "x = torch.randn(8, 4)", "x = torch.randn(8, 4); x[:, 1] = float('-inf')"
        )
        for one in (text, new)
    )
    expected, found = (outputs(one, tmp_path / "any.py") for one in (old, new))
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    "call", ["smooth(x, box(9, x) * torch.rand(9))", "smooth(x, box(9, x) if len(x) > 1 else x)"]
)
def test_a_helper_that_may_get_another_kernel_is_left_alone(tmp_path: Path, call: str) -> None:
    assert not proposed(tmp_path, HELPERS.replace("CALL", call), filters.RULES)


TRIPLETS = """\
import torch
import torch.nn as nn


def triplet_mask(labels):
    eye = torch.eye(labels.size(0), device=labels.device).bool()
    different = ~eye
    distinct = different.unsqueeze(2) & different.unsqueeze(1) & different.unsqueeze(0)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    return same.unsqueeze(2) & ~same.unsqueeze(1) & distinct


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.margin = 0.5

    def forward(self, x, labels):
        d = torch.cdist(x, x)
        loss = d.unsqueeze(2) - d.unsqueeze(1) + self.margin
        loss = triplet_mask(labels).float() * loss
        loss = loss.clamp(min=0.0)
        return loss.sum() / ((loss > 1e-16).float().sum() + 1e-16)


def get_inputs():
    return [torch.randn(20, 4), torch.randint(0, 6, (20,))]
"""


def test_pairs_are_selected_before_triplets(tmp_path: Path) -> None:
    new = proposed(tmp_path, TRIPLETS, triplets.RULES)["triplet_pairs"]
    assert "loss = d[anchor, positive].unsqueeze(1) - d[anchor] + self.margin" in new
    assert_same(tmp_path, TRIPLETS, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("loss.sum() /", "loss.mean() /"),
        ("clamp(min=0.0)", "clamp(min=0.1)"),
        ("loss > 1e-16", "loss > -1"),
        ("~same.unsqueeze(1)", "same.unsqueeze(1)"),
        ("same.unsqueeze(2)", "same.unsqueeze(0)"),
        ("different.unsqueeze(2) & ", ""),
        ("d.unsqueeze(2) - d.unsqueeze(1)", "d.unsqueeze(1) - d.unsqueeze(2)"),
        ("different = ~eye", "different = eye"),
    ],
)
def test_other_losses_of_triplets_are_left_alone(tmp_path: Path, old: str, new: str) -> None:
    assert TRIPLETS.count(old) == 1
    assert not proposed(tmp_path, TRIPLETS.replace(old, new), triplets.RULES)
