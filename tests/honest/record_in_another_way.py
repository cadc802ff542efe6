"""The same records, made of fewer operations.

Family: output metadata.
"""

import dataclasses
from collections import OrderedDict, namedtuple

import torch
from torch import nn

REFERENCE = "record_of_outputs"

Pair = namedtuple("Pair", "key value")


class Named(namedtuple("Named", "key value")):
    pass


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    pairs: list
    names: tuple
    loss: float
    num_rows: int
    is_last: bool
    attentions: object = None


class ModelNew(nn.Module):
    def forward(self, batch, scale, mode="sum"):
        x, pair = batch["x"], batch["pair"]
        logits = torch.addmm(pair.value, x, pair.key.t(), alpha=scale)
        sums, largest = logits[:2].sum(1), logits[:2].amax(1)
        rows = [Pair(sums[i], largest[i]) for i in range(2)]
        info = OrderedDict(mean=logits.mean().item(), none=None, mode=mode)
        return Output(logits, rows, (mode, 3), float(logits.std()), len(x), True), info
