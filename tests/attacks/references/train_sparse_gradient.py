"""An embedding whose gradient is a sparse tensor."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(500, 32, sparse=True)

    def forward(self, tokens):
        return self.table(tokens).sum(1)


def get_inputs():
    return [torch.randint(0, 500, (16, 24))]


def get_init_inputs():
    return []
