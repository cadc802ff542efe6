"""All places at once.

Family: value shapes.
"""

from torch import nn

REFERENCE = "places_in_a_list"


class ModelNew(nn.Module):
    def forward(self, x):
        return [place for place in x.argmax(-1).tolist() if place]
