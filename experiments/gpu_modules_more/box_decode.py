import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, variances=(0.1, 0.2)):
        super().__init__()
        self.variances = variances

    def forward(self, loc, priors):
        decoded = []
        for i in range(loc.size(0)):
            boxes = torch.cat(
                (
                    priors[:, :2] + loc[i][:, :2] * self.variances[0] * priors[:, 2:],
                    priors[:, 2:] * torch.exp(loc[i][:, 2:] * self.variances[1]),
                ),
                1,
            )
            boxes[:, :2] -= boxes[:, 2:] / 2
            boxes[:, 2:] += boxes[:, :2]
            decoded.append(boxes)
        return torch.stack(decoded, dim=0)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(32, 50000 // FACTOR, 4), torch.rand(50000 // FACTOR, 4)]
