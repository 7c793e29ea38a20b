"""The CPU's ceilings are measured once per host, raised by later measurements on an idle host, and never lowered by load."""

import json

from verifier.devices import cpu
from verifier.devices.cpu import CpuDevice


def test_a_kept_ceiling_is_used_at_once_and_only_raised(tmp_path, monkeypatch):
    measured = []

    def measure(bandwidth, rate):
        def once():
            measured.append(bandwidth)
            return {"bytes_per_second": bandwidth, "flops_per_second": rate}

        monkeypatch.setattr(cpu, "_measure_ceiling", once)

    measure(10.0, 5.0)
    assert CpuDevice(tmp_path).ceiling("fp32-strict").bytes_per_second == 10.0
    measure(8.0, 7.0)  # a busy machine, but a higher rate for products
    later = CpuDevice(tmp_path)
    assert later.ceiling("fp32-strict").flops_per_second == 5.0 and measured == [10.0]
    later.rest()
    later.rest()
    assert measured == [10.0, 8.0]
    assert (later.ceiling("fp32-strict").bytes_per_second, later.ceiling("fp32-strict").flops_per_second) == (10.0, 7.0)
    kept = next((tmp_path / "native").iterdir())
    kept.write_text(json.dumps({"bytes_per_second": None}))
    assert CpuDevice(tmp_path).ceiling("fp32-strict").bytes_per_second == 8.0
