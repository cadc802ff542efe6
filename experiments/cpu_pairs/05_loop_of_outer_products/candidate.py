from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x[:, :, None] * y[:, None, :]
