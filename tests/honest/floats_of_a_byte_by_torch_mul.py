"""The same floats of a byte, by operations that write into their own memory.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "floats_of_a_byte"


class ModelNew(nn.Module):
    def forward(self, x, scale):
        return x.float().mul_(scale).clamp_(-448.0, 448.0).to(torch.float8_e4m3fn)
