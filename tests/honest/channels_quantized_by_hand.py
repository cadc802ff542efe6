"""Reads the whole numbers of a quantized input, and writes those of a quantized output.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "channels_quantized"


class ModelNew(nn.Module):
    def forward(self, q, x):
        weight = q.int_repr() * q.q_per_channel_scales().float()[:, None]
        scales = weight.abs().amax(1) / 127 + 1e-6
        return torch.quantize_per_channel(
            weight * x, scales, torch.zeros(len(weight)), 0, torch.qint8
        )
