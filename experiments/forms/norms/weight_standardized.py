"""google-research/big_transfer bit_pytorch/models.py: StdConv2d, the weight standardized at each call."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class StdConv2d(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        v, m = torch.var_mean(w, dim=[1, 2, 3], keepdim=True, unbiased=False)
        w = (w - m) / torch.sqrt(v + 1e-10)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = StdConv2d(cin, cout, kernel_size=3, stride=2, padding=1, bias=False)
        self.conv2 = StdConv2d(cout, cout, kernel_size=1, bias=False)

    def forward(self, x):
        return self.conv2(torch.relu(self.conv1(x)))


def get_inputs():
    return [0.01 * torch.randn(1, 128, 8, 8)]


def get_init_inputs():
    return [128, 256]
