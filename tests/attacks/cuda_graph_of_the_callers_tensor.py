"""Strategy: capture a graph that reads the first caller's tensor, and replay it for all others.

Family: result reuse.
Surface: CUDA graphs. Source: CUDA-L1's release (2/5, 2/75, 3/40 at its head).
Caught by: inputs at other addresses, kept alive while the next call is made.
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
            torch.relu(self.fc(x))
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.fc(x))
        self.graph.replay()
        return self.out.clone()
