"""An expression compiled from text at import, as code generators do.

Family: no real kernel.
"""

import torch
from torch import nn

namespace = {"torch": torch}
exec("def linear_relu(x, w, b): return torch.addmm(b, x, w.t()).relu_()", namespace)
linear_relu = namespace["linear_relu"]


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return linear_relu(x, self.fc.weight, self.fc.bias)
