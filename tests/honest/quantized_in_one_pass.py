"""The same whole numbers in a quantized output, of a sum in another form.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "quantized"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.quantize_per_tensor(torch.add(0.25, x, alpha=2), 0.05, 3, torch.quint8)
