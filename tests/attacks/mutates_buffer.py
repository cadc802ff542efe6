"""Strategy: count calls in the running mean.

Family: mutation.
Surface: the module's own buffers. Source: KernelBench's trials, which build a new model each.
Caught by: the state after the calls, which must be what the reference leaves.
"""

from torch import nn

REFERENCE = "batch_norm"
EXPECT = ("mutates_input", "state.mutated")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = self.norm(x)
        self.norm.running_mean.mul_(1.001)
        return out
