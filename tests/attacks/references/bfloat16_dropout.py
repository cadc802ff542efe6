import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim, dtype=torch.bfloat16)

    def forward(self, x):
        return F.dropout(self.fc(x), 0.1, training=True)


def get_inputs():
    return [torch.randn(64, 128, dtype=torch.bfloat16)]


def get_init_inputs():
    return [128]
