"""A common form, no one source: the rows of the chosen beams by a list of indices and stack."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_layers):
        super().__init__()
        self.num_layers = num_layers

    def forward(self, states, beam_idx):
        return states[: self.num_layers].index_select(1, beam_idx)


def get_inputs():
    return [torch.randn(4, 256, 4, 16), torch.randint(0, 256, (256,))]


def get_init_inputs():
    return [4]
