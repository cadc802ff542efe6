from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
