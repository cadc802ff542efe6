"""A CUDA graph whose input is copied in and whose output is cloned.

Family: memory reuse.
"""

import torch
from torch import nn

NEEDS = "cuda"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.input = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.relu(self.fc(self.input))
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.fc(self.input))
        self.input.copy_(x)
        self.graph.replay()
        return self.out.clone()
