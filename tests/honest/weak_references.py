"""Workspaces that live as long as somebody uses their shape.

Family: memory reuse.
"""

import weakref

import torch
from torch import nn


class Workspace:
    def __init__(self, like):
        self.memory = torch.empty_like(like)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.workspaces, self.latest = weakref.WeakValueDictionary(), None

    def forward(self, x):
        workspace = self.workspaces.get(x.shape)
        if workspace is None:
            workspace = Workspace(x)
            self.workspaces[x.shape] = workspace
            self.latest = workspace
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=workspace.memory)
        return torch.relu(workspace.memory)
