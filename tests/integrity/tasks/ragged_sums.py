import torch
import torch.nn as nn


class Model(nn.Module):
    """Sums the rows of each part; `begins` holds the row at which each part begins, and the number of rows. Here, all parts have 32 rows."""

    def forward(self, x, begins):
        ends = torch.cat([x.new_zeros(1, x.shape[1], dtype=torch.float64), x.double().cumsum(0)])
        return (ends[begins[1:]] - ends[begins[:-1]]).to(x.dtype)


def get_inputs():
    return [torch.randn(4096, 128), torch.arange(0, 4097, 32)]


def get_init_inputs():
    return []
