# task: tasks/agents_channels_last_blocks.py
# device: cuda
# verdict: class orchestration
# precision: fp16
# call: 90
# says: as an agent writes it: no kernel of its own, filters in channels_last cached by version, the elementwise pieces by torch.compile with options, result made contiguous, cuDNN flags read
import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.compile(dynamic=False, options={"max_autotune": False, "epilogue_fusion": True})
def _scale_shift_silu(h: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.silu(h * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1))


@torch.compile(dynamic=False)
def _bias_add_relu(x: torch.Tensor, h: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(x + (h + bias.view(1, -1, 1, 1)))


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False, dtype=torch.float16)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.float16)
        self.scale = nn.Parameter(torch.ones(channels, dtype=torch.float16))
        self.shift = nn.Parameter(torch.zeros(channels, dtype=torch.float16))
        self._filters = {}

    def _filter(self, conv):
        w = conv.weight
        key = (w.data_ptr(), w._version, w.device)
        kept = self._filters.get(conv)
        if kept is None or kept[0] != key:
            kept = (key, w.detach().contiguous(memory_format=torch.channels_last))
            self._filters[conv] = kept
        return kept[1]

    def forward(self, x):
        h = F.conv2d(x, self._filter(self.conv1), padding=1)
        h = _scale_shift_silu(h, self.scale, self.shift)
        h = F.conv2d(h, self._filter(self.conv2), padding=1)
        return _bias_add_relu(x, h, self.conv2.bias)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.Sequential(Block(channels), Block(channels))

    @torch.no_grad()
    def forward(self, x):
        assert torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled, "channels_last only pays with cuDNN"
        return self.blocks(x.contiguous(memory_format=torch.channels_last)).contiguous()
