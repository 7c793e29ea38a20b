# task: tasks/mlp.py
# device: cpu
# says: walks a plan of nodes that refer to their parents, rebuilt in each call, so that each call leaves cyclic garbage for the collector
import torch
import torch.nn as nn


class Node:
    def __init__(self, parent, work):
        self.parent, self.work, self.children = parent, work, []
        if parent is not None:
            parent.children.append(self)

    def run(self, x):
        x = self.work(x)
        for child in self.children:
            x = child.run(x)
        return x


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)

    def forward(self, x):
        root = Node(None, self.first)
        Node(Node(root, torch.relu), self.second)
        return root.run(x).add_(x)
