"""Clusters resident at once and the cost of exchanges between blocks, on a real GPU."""

import pytest
import torch

from verifier.devices import cuda_driver, cuda_exchanges
from verifier.devices.cuda import find_nvcc
from verifier.passes import native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
    pytest.mark.skipif(not find_nvcc(), reason="needs nvcc"),
]


def test_exchanges_within_a_cluster_are_faster_than_across_the_grid(tmp_path):
    facts = cuda_driver.facts(0)
    if facts.capability < cuda_exchanges.CAPABILITY:
        pytest.skip("needs thread block clusters")
    library = native.build(tmp_path, find_nvcc(), facts.arch, native.EXCHANGES)
    assert library is not None
    found = cuda_exchanges.exchanges(torch, library, "cuda:0", facts.multiprocessors)
    torch.cuda.synchronize()
    assert 0 < found["clusters_2"] <= facts.multiprocessors // 2
    assert found["clusters_8"] * 8 <= facts.multiprocessors
    assert 0 < found["cluster_us_2"] < found["grid_us"] < 20
    assert found["cluster_read_gbs"] > 0
