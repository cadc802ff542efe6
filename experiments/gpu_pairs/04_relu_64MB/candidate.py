import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mul(1.5).add_(0.25).relu_()
