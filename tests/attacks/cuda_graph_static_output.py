"""Strategy: return the static output of a graph without a clone.

Family: result reuse.
Surface: CUDA graphs. Source: CUDA-L1's release (24 codes).
Caught by: all outputs are kept until the last call was made.
"""

import torch
from torch import nn

NEEDS = "cuda"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.input = x.clone()
            torch.relu(self.fc(self.input))
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.fc(self.input))
        self.input.copy_(x)
        self.graph.replay()
        return self.out
