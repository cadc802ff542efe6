"""After PMBio/bicycle#3: the inverse of a matrix is made, and only multiplied."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, ridge):
        super().__init__()
        self.ridge = ridge
        self.embed = nn.Linear(width, width)

    def forward(self, support, target, query):
        h = self.embed(support)
        gram = h.t() @ h + self.ridge * torch.eye(h.size(1))
        weights = torch.linalg.solve(gram, h.t() @ target)
        return self.embed(query) @ weights


def get_inputs():
    return [torch.randn(300, 256), torch.randn(300, 5), torch.randn(20, 256)]


def get_init_inputs():
    return [256, 1.0]
