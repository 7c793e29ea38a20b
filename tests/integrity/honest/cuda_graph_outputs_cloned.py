# task: tasks/launches.py
# device: cuda
# says: replays one CUDA graph and clones its static output
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size, steps):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self.steps = steps
        self.graph = self.into = self.out = None

    def work(self, x):
        for _ in range(self.steps):
            x = torch.tanh(x * self.gain) + 0.5 * x
        return x

    def capture(self, x):
        self.into = torch.empty_like(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.work(self.into)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.work(self.into)

    def forward(self, x):
        if self.graph is None or self.into.shape != x.shape:
            self.capture(x)
        self.into.copy_(x)
        self.graph.replay()
        return self.out.clone()
