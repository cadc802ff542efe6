"""MuggleWang/CosFace_pytorch layer.py: cosine of features and class weights, both divided by their L2 norms."""

import torch
import torch.nn as nn


def l2_norm(x, axis=1):
    norm = x.pow(2).sum(axis, keepdim=True).sqrt()
    return torch.div(x, norm.expand_as(x))


class Model(nn.Module):
    def __init__(self, in_features, out_features, s):
        super().__init__()
        self.s = s
        self.weight = nn.Parameter(torch.randn(out_features, in_features))

    def forward(self, x):
        cosine = torch.mm(l2_norm(x), l2_norm(self.weight).t())
        return self.s * cosine


def get_inputs():
    return [torch.randn(16, 256)]


def get_init_inputs():
    return [256, 4000, 30.0]
