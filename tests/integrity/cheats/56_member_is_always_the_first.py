# hack: 56
# task: tasks/member_of_an_enumeration.py
# device: any
# verdict: wrong_result
# because: other members: out
# defence: runtime
# says: never reads a member of an enumeration among the arguments
from enum import Enum

import torch.nn as nn
from torch.nn.functional import silu


class Gate(Enum):
    SIGMOID = 1
    TANH = 2
    HARD = 3


class ModelNew(nn.Module):
    def forward(self, x, gate):
        return silu(x)
