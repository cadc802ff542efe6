"""Products, sorts and transforms that another routine computes: found, equal, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.propose.recorded.rig import assert_found, assert_left_alone

START = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, k=4):
        super().__init__()
        self.k = k
        self.weight = nn.Parameter(torch.randn(3, 16, 16))
        self.fc = nn.Linear(16, 6)
        self.mlp = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 6))
        self.head = nn.Conv2d(8, 4, kernel_size=1)
        self.wide = nn.Conv2d(8, 9, 1)
        self.conv = nn.Conv2d(8, 4, 3)
        self.sized = nn.Conv2d(8, 4, k - 3)
        self.strided = nn.Conv2d(8, 4, 1, stride=2)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.patch = nn.Conv2d(8, 5, 6, stride=6)
        self.cube = nn.Conv3d(2, 5, (2, 4, 6), bias=False)
        self.padded = nn.Conv2d(8, 5, 6, padding=1)
        self.kernel = nn.Parameter(torch.randn(5, 8, 3, 3))
        self.matrix = nn.Parameter(torch.randn(72, 5))
        self.windows = nn.Unfold(3, padding=1, stride=2)
        self.out = nn.Linear(72, 5)
        self.register_buffer("ids", torch.randperm(16))
        self.votes = nn.Parameter(torch.randn(5, 1, 12, 8, 6))

    def forward(self, x, square, y, rows, votes, image, labels, ids):
"""
END = """

def get_inputs():
    return [
        torch.randn(2, 16, 16),
        torch.randn(2, 16, 16) + 8 * torch.eye(16),
        torch.randn(16, 4),
        torch.randn(40, 3, 16),
        torch.randn(32, 12, 8),
        torch.randn(2, 8, 6, 6),
        torch.randint(-1, 9, (5, 7)),
        torch.randint(0, 16, (2, 9)),
    ]
"""
FOUND = {
    "inverse": ("solve", "return torch.inverse(square) @ x"),
    "inverse in another line": (
        "solve",
        "inverse = torch.linalg.inv(square[0])\nreturn torch.mm(inverse, y)",
    ),
    "inverse on the right": ("solve", "return torch.bmm(x, square.inverse())"),
    "inverse and turned": ("solve", "return (y.t() @ square[1].inverse()).t()"),
    "column for each matrix": (
        "product_without_copies",
        "return torch.matmul(self.weight, rows.unsqueeze(-1)).squeeze(-1)",
    ),
    "row for each matrix": (
        "product_without_copies",
        "return (rows[:, :, None] @ self.weight)[:, :, 0]",
    ),
    "votes": (
        "product_without_copies",
        "priors = votes[None, :, :, None] @ self.votes\nreturn priors.squeeze(3).sum(2)",
    ),
    "triangle": ("running_sum", "n = x.size(-1)\nreturn x @ torch.triu(torch.ones(n, n))"),
    "triangle on the left": (
        "running_sum",
        "lower = torch.ones((16, 16)).tril()\nreturn torch.matmul(lower, x)",
    ),
    "turned triangle": ("running_sum", "return torch.matmul(y.t(), torch.ones(16, 16).tril().T)"),
    "sum to go": ("running_sum", "return x[0] @ torch.tril(torch.ones(16, 16))"),
    "singular values": ("values_alone", "u, s, v = torch.svd(x)\nreturn s.sum(-1)"),
    "singular values of a tuple": (
        "values_alone",
        "return torch.linalg.svd(x, full_matrices=False)[1] ** 2",
    ),
    "singular values by name": ("values_alone", "return torch.linalg.svd(x).S"),
    "eigenvalues": (
        "values_alone",
        "values, _ = torch.linalg.eigh(x @ x.mT)\nreturn values[..., -1]",
    ),
    "argmax": ("positions_of_max", "return torch.argmax(x, dim=1)"),
    "argmin": ("positions_of_max", "return (x * 2).argmin(-2, keepdim=True)"),
    "argmax of softmax": ("positions_of_max", "return x.softmax(dim=1).argmax(1)"),
    "mean of rows": ("mean_before_layer", "return self.fc(x).mean(dim=1)"),
    "mean in another line": (
        "mean_before_layer",
        "x = torch.tanh(x)\nx = self.fc(x)\nreturn torch.mean(x, -2, keepdim=True)",
    ),
    "pooled map": ("mean_before_layer", "return self.pool(self.head(image.relu())).flatten(1)"),
    "pooled by a function": (
        "mean_before_layer",
        "return F.adaptive_avg_pool2d(self.head(image), 2)",
    ),
    "mean of pixels": ("mean_before_layer", "return self.head(image).mean(dim=(2, 3))"),
    "mean of pixels by parts": (
        "mean_before_layer",
        "y = self.wide(image)\nreturn y.mean([2, 3], keepdim=True)",
    ),
    "upsampled": (
        "layer_before_upsampling",
        "return self.head(F.interpolate(image, size=(12, 9), mode='bilinear'))",
    ),
    "upsampling layer": (
        "layer_before_upsampling",
        "y = self.up(image)\nreturn torch.relu(self.head(y))",
    ),
    "upsampled to another map": (
        "layer_before_upsampling",
        "y = F.interpolate(image, x.shape[1:], mode='bicubic')\ny = self.head(y)\nreturn y",
    ),
    "patch": ("patch_product", "return self.patch(image).flatten(1)"),
    "patches of a video": (
        "patch_product",
        "x = votes.view(-1, 2, 2, 4, 6)\nx = self.cube(x)\nreturn x.view(-1, 5)",
    ),
    "patch of a list": ("patch_product", "return -self.patch(image.relu())[:, :, 0, 0]"),
    "unfolded": (
        "unfolded_convolution",
        "y = self.kernel.view(5, -1) @ F.unfold(image, 3, padding=1)\nreturn y.view(2, 5, 6, 6)",
    ),
    "unfolded and turned": (
        "unfolded_convolution",
        "w = F.unfold(image, kernel_size=(3, 3), dilation=2)\n"
        "return w.transpose(1, 2) @ self.matrix",
    ),
    "unfolded for a layer": (
        "unfolded_convolution",
        "return self.out(self.windows(image).transpose(1, 2)).relu()",
    ),
    "unfolded rows": (
        "unfolded_convolution",
        "w = F.unfold(image, 3, stride=self.k - 3)\nreturn torch.matmul(self.matrix.t(), w)",
    ),
    "new numbers": (
        "mapped_classes",
        """out = torch.full_like(labels, 255)
for k in range(8):
    out[labels == k] = self.ids[k]
return out""",
    ),
    "colors": (
        "mapped_classes",
        """out = torch.zeros(*labels.shape, 4)
for c in range(y.size(0)):
    mask = c == labels
    out[mask] = y[c]
return out""",
    ),
    "weights by where": (
        "mapped_classes",
        """weights, bias = torch.zeros(5, 7), y[:, 1]
for c in range(self.k):
    weights = torch.where(labels == c, bias[c], weights)
return weights""",
    ),
    "circular convolution": (
        "real_convolution",
        "return torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(square)).real",
    ),
    "circular correlation": (
        "real_convolution",
        "a = torch.fft.fft(x, dim=-1)\nb = torch.conj(torch.fft.fft(square, dim=-1))\n"
        "c = torch.fft.ifft(a * b, dim=-1)\nreturn torch.real(c) + 1",
    ),
    "autocorrelation": (
        "real_convolution",
        "f = torch.fft.fft(x[..., :5] * 2)\nreturn torch.fft.ifft(f * f.conj()).real",
    ),
    "half of a spectrum": (
        "half_spectrum",
        "n = x.size(-1)\nreturn torch.fft.fft(x)[..., : n // 2 + 1].abs()",
    ),
    "power of a half": (
        "half_spectrum",
        "f = torch.fft.fft(x * 2, dim=2)\nreturn (f.abs() ** 2)[:, :, : x.shape[2] // 2]",
    ),
    "part of a half": (
        "half_spectrum",
        "f = torch.fft.fft(rows)\nreturn f.abs()[..., 1 : 16 // 2]",
    ),
    "mean of a stack": ("sum_of_stack", "return torch.stack([x, square, x * 2]).mean(0)"),
    "sum of a stack": (
        "sum_of_stack",
        "a, b = x.relu(), self.fc(x)[..., :1]\nboth = torch.stack((a, a + b), dim=-1)\n"
        "return both.sum(dim=-1)",
    ),
    "mean of layers": (
        "sum_of_stack",
        "return torch.mean(torch.stack([self.fc(x), self.mlp(x)], 1), dim=1)",
    ),
    "position of a probability": (
        "positions_of_logits",
        "return torch.argmax(F.softmax(x, dim=-1), dim=-1)",
    ),
    "position in another line": (
        "positions_of_logits",
        "p = x.log_softmax(dim=1)\nreturn p.argmax(dim=1, keepdim=True)",
    ),
    "position of a sigmoid": ("positions_of_logits", "return x.sigmoid().argmax(dim=1)"),
    "penalty of sets": (
        "token_sets",
        """scores = x[0].clone()
for i in range(ids.size(0)):
    for t in set(ids[i].tolist()):
        if scores[i, t] < 0:
            scores[i, t] *= self.k
        else:
            scores[i, t] /= self.k
return scores""",
    ),
    "penalty of positive scores": (
        "token_sets",
        """scores, few = x[1] + 0, ids[:1]
for row in range(1):
    for token in torch.unique(few[row]):
        if scores[row][token] > 0.1:
            scores[row][token] -= 0.5
return scores""",
    ),
    "presence": (
        "token_sets",
        """scores = x[0] * 2
for i in range(ids.shape[0]):
    for t in ids[i].unique().tolist():
        scores[i, t] -= 0.5
return scores""",
    ),
}
LEFT = {
    "vectors": ("values_alone", "u, s, v = torch.svd(x)\nreturn s.sum(-1), u"),
    "vectors in another branch": (
        "values_alone",
        "u, s, v = torch.svd(x)\nreturn u if self.k > 9 else s",
    ),
    "lower triangle": ("values_alone", "return torch.linalg.eigh(x @ x.mT, UPLO='U')[0]"),
    "argmax of rows": ("positions_of_max", "return x.argmax(-1)"),
    "mean of columns": ("mean_before_layer", "return self.fc(x).mean(-1)"),
    "mean of all": ("mean_before_layer", "return self.fc(x).mean()"),
    "mean after an activation": ("mean_before_layer", "return self.fc(x).relu().mean(1)"),
    "mean after layers": ("mean_before_layer", "return self.mlp(x).mean(1)"),
    "rows that are read": ("mean_before_layer", "y = self.fc(x)\nreturn y.mean(1), y"),
    "maximum of rows": ("mean_before_layer", "return self.fc(x).amax(1)"),
    "pooled after windows": ("mean_before_layer", "return self.pool(self.conv(image))"),
    "mean over samples": ("mean_before_layer", "return self.head(image).mean((0, 2, 3))"),
    "kernel of another call": ("layer_before_upsampling", "return self.sized(self.up(image))"),
    "windows of the enlarged": ("layer_before_upsampling", "return self.conv(self.up(image))"),
    "steps of the enlarged": ("layer_before_upsampling", "return self.strided(self.up(image))"),
    "more channels": ("layer_before_upsampling", "return self.wide(self.up(image))"),
    "activated": ("layer_before_upsampling", "return self.head(self.up(image).relu())"),
    "made smaller": (
        "layer_before_upsampling",
        "return self.head(F.interpolate(image, scale_factor=0.5))",
    ),
    "patch with padding": ("patch_product", "return self.padded(image)"),
    "many patches": ("patch_product", "return self.patch(self.up(image))"),
    "windows that are read": (
        "unfolded_convolution",
        "w = F.unfold(image, 3)\nreturn self.matrix.t() @ w, w",
    ),
    "windows of a signal": (
        "unfolded_convolution",
        "return rows[0].unfold(1, 3, 1).transpose(1, 2) @ y[:14]",
    ),
    "weights of each sample": (
        "unfolded_convolution",
        "return self.matrix.t().expand(2, 5, 72) @ F.unfold(image, 3)",
    ),
    "numbers in place": (
        "mapped_classes",
        """out = labels
for k in range(8):
    out[labels == k] = self.ids[k]
return out""",
    ),
    "a view of the numbers": (
        "mapped_classes",
        """out = labels.view(-1)
for k in range(8):
    out[labels.view(-1) == k] = self.ids[k]
return out""",
    ),
    "another class's row": (
        "mapped_classes",
        """out = torch.zeros_like(labels)
for k in range(8):
    out[labels == k] = self.ids[k + 1]
return out""",
    ),
    "two writes": (
        "mapped_classes",
        """out, more = torch.zeros_like(labels), torch.zeros_like(labels)
for k in range(8):
    out[labels == k] = self.ids[k]
    more[labels == k] = self.ids[k]
return out + more""",
    ),
    "class that is read": (
        "mapped_classes",
        """out = torch.zeros_like(labels)
for k in range(8):
    out[labels == k] = self.ids[k]
return out + k""",
    ),
    "classes as fractions": (
        "mapped_classes",
        """out, labels = torch.zeros_like(labels), labels / 2
for k in range(8):
    out[labels == k] = self.ids[k]
return out""",
    ),
    "spectrum that is read": (
        "real_convolution",
        "f = torch.fft.fft(x)\nreturn torch.fft.ifft(f * f).real, f.abs()",
    ),
    "complex signal": (
        "real_convolution",
        "f = torch.fft.fft(torch.complex(x, square))\nreturn torch.fft.ifft(f * f).real",
    ),
    "complex result": ("real_convolution", "return torch.fft.ifft(torch.fft.fft(x)).abs()"),
    "along rows": (
        "real_convolution",
        "return torch.fft.ifft(torch.fft.fft(x, dim=1), dim=1).real",
    ),
    "filtered spectrum": (
        "real_convolution",
        "return torch.fft.ifft(torch.fft.fft(x) * square).real",
    ),
    "whole spectrum": ("half_spectrum", "return torch.fft.fft(x).abs()"),
    "bare name": (
        "half_spectrum",
        "from torch.fft import fft\nreturn fft(x)[..., : 16 // 2].abs()",
    ),
    "more than a half": ("half_spectrum", "return torch.fft.fft(x)[..., : 16 // 2 + 4].abs()"),
    "probability that is read": (
        "positions_of_logits",
        "p = x.softmax(-1)\nreturn p.argmax(-1), p",
    ),
    "position along another dimension": (
        "positions_of_logits",
        "return x.softmax(dim=1).argmax(dim=2)",
    ),
    "stack along another dimension": (
        "sum_of_stack",
        "return torch.stack([x, square]).mean(1)",
    ),
    "stack of a list": ("sum_of_stack", "return torch.stack([x * i for i in range(3)]).sum(0)"),
    "stack that is read": ("sum_of_stack", "s = torch.stack([x, square])\nreturn s.sum(0), s"),
    "stack that is kept wide": (
        "sum_of_stack",
        "return torch.stack([x, square]).mean(0, keepdim=True)",
    ),
    "tokens that repeat": (
        "token_sets",
        """scores = x[0].clone()
for i in range(2):
    for t in ids[i].tolist():
        scores[i, t] -= 0.5
return scores""",
    ),
    "penalty by the token": (
        "token_sets",
        """scores = x[0].clone()
for i in range(2):
    for t in set(ids[i].tolist()):
        scores[i, t] -= t
return scores""",
    ),
    "score of the next token": (
        "token_sets",
        """scores = x[0].clone()
for i in range(2):
    for t in set(ids[i].tolist()):
        if scores[i, t - 1] < 0:
            scores[i, t] -= 1.0
return scores""",
    ),
    "penalty of each row": (
        "token_sets",
        """scores = x[0].clone()
for i in range(2):
    for t in set(ids[i].tolist()):
        scores[i, t] *= y[i, 0]
return scores""",
    ),
    "argmax of all": ("positions_of_max", "return x.argmax()"),
    "argmax of numbers": ("positions_of_max", "return x.long().argmax(1)"),
    "inverse that is read": ("solve", "inverse = square.inverse()\nreturn inverse @ x, inverse"),
    "one inverse for many": ("solve", "return torch.inverse(square[0]) @ x"),
    "pseudo-inverse": ("solve", "return torch.linalg.pinv(square) @ x"),
    "product of two weights": ("product_without_copies", "return x @ square"),
    "one matrix for all": ("product_without_copies", "return rows @ self.weight[0]"),
    "many rows": ("product_without_copies", "return rows[:, :1].expand(40, 16, 16) @ square[0]"),
    "triangle without its diagonal": (
        "running_sum",
        "return x @ torch.triu(torch.ones(16, 16), diagonal=1)",
    ),
    "triangle of weights": ("running_sum", "return x @ torch.triu(self.weight[0])"),
    "triangle that is wide": ("running_sum", "return x @ torch.triu(torch.ones(16, self.k))"),
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


@pytest.mark.parametrize(("rule", "body"), FOUND.values(), ids=FOUND)
def test_routine_is_found_and_gives_the_same(tmp_path: Path, rule: str, body: str) -> None:
    assert_found(tmp_path, text_of(body), rule)


@pytest.mark.parametrize(("rule", "body"), LEFT.values(), ids=LEFT)
def test_look_alike_is_left_alone(tmp_path: Path, rule: str, body: str) -> None:
    assert_left_alone(tmp_path, text_of(body), rule)
