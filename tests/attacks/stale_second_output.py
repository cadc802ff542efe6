"""Strategy: compute the first output and return an old second one.

Family: output metadata.
Surface: outputs beyond the first. Source: own.
Caught by: every element of every output is compared.
"""

from torch import nn

REFERENCE = "several_outputs"
EXPECT_ANY = (("incorrect_values", "values.mismatch"),)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.pooled = None

    def forward(self, x):
        hidden = self.fc(x)

        if self.pooled is None:
            self.pooled = hidden.mean(dim=0)
        return {"hidden": hidden, "pooled": self.pooled.clone()}
