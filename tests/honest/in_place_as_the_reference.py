"""An update in place, where the reference updates in place.

Family: mutation.
"""

from torch import nn

REFERENCE = "in_place"


class ModelNew(nn.Module):
    def forward(self, weight, gradient):
        return weight.sub_(gradient.clamp(-1, 1).mul_(0.1))
