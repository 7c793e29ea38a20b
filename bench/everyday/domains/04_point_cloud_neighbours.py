"""Set abstraction of a point cloud: the 32 nearest points of each centre, with relative positions, pass through a small network and a maximum.

Source: Qi et al., "PointNet++", arXiv 1706.02413 (grouping), with nearest neighbours as in DGCNN (Wang et al., arXiv 1801.07829).
"""

import torch
import torch.nn as nn

BATCH, POINTS, CENTRES, FEATURES, NEIGHBOURS = 8, 4096, 1024, 64, 32


class Model(nn.Module):
    def __init__(self, features, neighbours):
        super().__init__()
        self.neighbours = neighbours
        layers = []
        for inputs, outputs in ((features + 3, 64), (64, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.network = nn.Sequential(*layers)

    def forward(self, points, features, centres):
        """`points` (batch, points, 3), `features` (batch, points, features), `centres` (batch, centres, 3) -> (batch, 128, centres)."""
        distance = (centres[:, :, None] - points[:, None]).square().sum(dim=-1)
        near = distance.topk(self.neighbours, dim=-1, largest=False, sorted=False).indices
        flat = near.reshape(near.shape[0], -1, 1)
        places = points.gather(1, flat.expand(-1, -1, 3)).view(*near.shape, 3) - centres[:, :, None]
        values = features.gather(1, flat.expand(-1, -1, features.shape[-1])).view(*near.shape, -1)
        grouped = torch.cat((places, values), dim=-1).permute(0, 3, 1, 2)  # (batch, 3 + features, centres, neighbours)
        return self.network(grouped).amax(dim=-1)


def get_inputs():
    return [torch.randn(BATCH, POINTS, 3), torch.randn(BATCH, POINTS, FEATURES), torch.randn(BATCH, CENTRES, 3)]


def get_init_inputs():
    return [FEATURES, NEIGHBOURS]
