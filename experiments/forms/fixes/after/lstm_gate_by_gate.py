"""piEsposito/pytorch-lstm-by-hand: NaiveCustomLSTM, eight products in each step."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, input_sz, hidden_sz):
        super().__init__()
        self.hidden_size = hidden_sz
        for gate in ("i", "f", "c", "o"):
            self.register_parameter(
                f"U_{gate}", nn.Parameter(torch.randn(input_sz, hidden_sz) * 0.1)
            )
            self.register_parameter(
                f"V_{gate}", nn.Parameter(torch.randn(hidden_sz, hidden_sz) * 0.1)
            )
            self.register_parameter(f"b_{gate}", nn.Parameter(torch.randn(hidden_sz) * 0.1))

    def forward(self, x):
        bs, seq_sz, _ = x.size()
        hidden_seq = []
        h_t = torch.zeros(bs, self.hidden_size, device=x.device)
        c_t = torch.zeros(bs, self.hidden_size, device=x.device)
        U = torch.cat((self.U_i, self.U_f, self.U_o, self.U_c), dim=1)
        V = torch.cat((self.V_i, self.V_f, self.V_o, self.V_c), dim=1)
        b = torch.cat((self.b_i, self.b_f, self.b_o, self.b_c))
        for x_t in (x @ U + b).unbind(1):
            gates = torch.addmm(x_t, h_t, V)
            i_t, f_t, o_t = torch.sigmoid(gates[:, : 3 * self.hidden_size]).chunk(3, dim=1)
            g_t = torch.tanh(gates[:, 3 * self.hidden_size :])
            c_t = f_t * c_t + i_t * g_t
            h_t = o_t * torch.tanh(c_t)
            hidden_seq.append(h_t.unsqueeze(0))
        hidden_seq = torch.cat(hidden_seq, dim=0)
        return hidden_seq.transpose(0, 1).contiguous()


def get_inputs():
    return [torch.randn(8, 40, 32)]


def get_init_inputs():
    return [32, 48]
