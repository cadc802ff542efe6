"""Labels below zero left out by a mask.

Family: ignored argument.
"""

from torch import nn

REFERENCE = "labels_with_ignored"


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        logp = logits.log_softmax(-1)
        keep = labels != -100
        picked = logp.gather(-1, labels.clamp_min(0)[..., None])[..., 0]
        per = -(0.9 * picked + 0.1 * logp.mean(-1))
        return (per * keep).sum() / keep.sum()
