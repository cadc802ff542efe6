import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=-1)
