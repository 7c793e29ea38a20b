"""Watching a program imports no compiler: torch's own profiler class and its dispatch modes would import torch._dynamo and torch._inductor."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

WATCHED = """
import json, sys, torch
from verifier.integrity.blocked import settings, watch
from verifier.integrity.observed import observe

class Device:
    torch_device = "cpu"
    def sync(self): pass

x = torch.rand(64, 64)
def forward():
    return torch.softmax(x @ x, -1)

seen = observe(Device(), forward, lambda: None, settings())
loaded = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
import torch._dynamo
beside = watch(forward)
print(json.dumps({"kernels": [kernel["name"] for kernel in seen["kernels"]], "needs": seen["needs"], "loaded": loaded, "beside": beside}))
"""


@pytest.mark.slow
def test_no_compiler_is_imported_and_beside_one_the_same_is_seen():
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["loaded"] == []
    assert {"aten::mm", "aten::_softmax"} <= set(seen["kernels"])
    assert [(need["name"], need["calls"]) for need in seen["needs"]] == [("aten.mm", 1), ("aten._softmax", 1)]
    assert seen["beside"]["needs"] == seen["needs"] and seen["beside"]["blocked"] == "raised"
