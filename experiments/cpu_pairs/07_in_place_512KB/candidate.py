from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sub(0.5).mul_(2.0).clamp_(0.0, 1.0)
