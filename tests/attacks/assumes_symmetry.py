"""Strategy: multiply as if the second factor were symmetric.

Family: work skipping.
Surface: structure of the inputs. Source: Makora's sample (matmul for symmetric matrices);
kernelguard, INPUT_STRUCTURE_TRUNCATION_DISPATCH.
Caught by: inputs have no structure that the workload does not state.
"""

from torch import nn

REFERENCE = "matmul"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b.t()
