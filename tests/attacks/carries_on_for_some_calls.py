"""Strategy: stop to follow the inputs after the calls of the trials.

Family: phase detection.
Surface: state that no state_dict holds. Source: own.
Caught by: both programs make as many calls, and each timed answer follows from all of them.
"""

from torch import nn

EXPECT_ANY = (("incorrect_values", "values.timed"), ("incorrect_values", "values.mismatch"))
REFERENCE = "carries_on"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.calls = 0.0, 0

    def forward(self, x):
        self.calls += 1
        if self.calls < 30:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean
