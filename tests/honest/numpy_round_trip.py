"""The product through numpy, which shares the tensors' memory."""

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = x.numpy() @ self.fc.weight.detach().numpy().T + self.fc.bias.detach().numpy()
        return torch.from_numpy(np.maximum(out, 0))
