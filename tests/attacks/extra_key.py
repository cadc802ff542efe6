"""Strategy: return one more output than the reference.

Family: output metadata.
Surface: the structure of the output. Source: own.
Caught by: the structure must be the reference's.
"""

from torch import nn

REFERENCE = "several_outputs"
EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        hidden = self.fc(x)
        return {"hidden": hidden, "pooled": hidden.mean(dim=0), "fast": hidden}
