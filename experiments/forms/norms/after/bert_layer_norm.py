"""huggingface/pytorch-pretrained-BERT pytorch_pretrained_bert/modeling.py: BertLayerNorm in Python."""

import torch
import torch.nn as nn


class BertLayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-12):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        self.variance_epsilon = eps

    def forward(self, x):
        return nn.functional.layer_norm(
            x, self.weight.shape, self.weight, self.bias, self.variance_epsilon
        )


class ModelNew(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.LayerNorm = BertLayerNorm(hidden_size)

    def forward(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        return self.LayerNorm(hidden_states + input_tensor)


def get_inputs():
    return [torch.randn(16, 256, 128), torch.randn(16, 256, 128)]


def get_init_inputs():
    return [128]
