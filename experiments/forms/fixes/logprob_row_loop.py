"""OpenRLHF/OpenRLHF openrlhf/models/utils.py: log-probabilities of tokens, one sequence at a time."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, logits, labels):
        per_token_logps = []
        for row_logits, row_labels in zip(logits, labels):
            row_logps = F.log_softmax(row_logits / self.temperature, dim=-1)
            row = row_logps.gather(dim=-1, index=row_labels.unsqueeze(-1)).squeeze(-1)
            per_token_logps.append(row)
        return torch.stack(per_token_logps)


def get_inputs():
    return [torch.randn(128, 4, 50), torch.randint(0, 50, (128, 4))]


def get_init_inputs():
    return [0.7]
