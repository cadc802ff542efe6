"""Strategy: return the right whole numbers under another scale.

Family: output metadata.
Surface: the scale of a quantized output. Source: own.
Caught by: scale and zero point are compared with the whole numbers.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "quantized"


class ModelNew(nn.Module):
    def forward(self, x):
        numbers = torch.quantize_per_tensor(x.mul(2).add(0.25), 0.05, 3, torch.quint8).int_repr()
        return torch._make_per_tensor_quantized_tensor(numbers, 0.1, 3)
