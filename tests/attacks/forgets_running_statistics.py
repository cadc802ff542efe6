"""Strategy: normalize right and leave the running statistics as they are.

Family: specialization.
Surface: buffers. Source: own.
Caught by: in train mode the state after every call is compared.
"""

from torch import nn

REFERENCE = "train_batch_norm"
EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("precision", "values.precision"),
    ("mutates_input", "state.mutated"),
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
