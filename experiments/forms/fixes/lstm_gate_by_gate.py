"""piEsposito/pytorch-lstm-by-hand: NaiveCustomLSTM, eight products in each step."""

import torch
import torch.nn as nn


class Model(nn.Module):
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
        for t in range(seq_sz):
            x_t = x[:, t, :]
            i_t = torch.sigmoid(x_t @ self.U_i + h_t @ self.V_i + self.b_i)
            f_t = torch.sigmoid(x_t @ self.U_f + h_t @ self.V_f + self.b_f)
            g_t = torch.tanh(x_t @ self.U_c + h_t @ self.V_c + self.b_c)
            o_t = torch.sigmoid(x_t @ self.U_o + h_t @ self.V_o + self.b_o)
            c_t = f_t * c_t + i_t * g_t
            h_t = o_t * torch.tanh(c_t)
            hidden_seq.append(h_t.unsqueeze(0))
        hidden_seq = torch.cat(hidden_seq, dim=0)
        return hidden_seq.transpose(0, 1).contiguous()


def get_inputs():
    return [torch.randn(8, 40, 32)]


def get_init_inputs():
    return [32, 48]
