# task: tasks/conv_relu.py
# device: cuda
# verdict: class orchestration
# says: cuDNN with channels-last memory, the weight converted when it is loaded
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=1)
        self.conv = self.conv.to(memory_format=torch.channels_last)

    def forward(self, x):
        y = F.conv2d(x.to(memory_format=torch.channels_last), self.conv.weight, self.conv.bias, padding=1)
        return torch.relu_(y)
