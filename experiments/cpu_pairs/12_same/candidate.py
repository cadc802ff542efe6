import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return nn.functional.layer_norm(y, (512,))
