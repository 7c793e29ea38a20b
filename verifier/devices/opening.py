"""Opens a device: the judge's half by name, or the party's half from the judge's description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verifier.devices.base import Device, DeviceError, PartyDevice

# Imports within functions: a process loads only the half, judge's or party's, and the kind of device that it uses.


def open_device(name: str, data_dir: Path, later: bool = False) -> Device:
    """Opens `cpu` or `cuda[:N]`. Raises `DeviceError` with instructions on what to install if this host has no such device. With `later`, the caller
    opens it."""
    if name == "cpu":
        from verifier.devices.cpu import CpuDevice

        device: Device = CpuDevice(data_dir)
    elif name == "cuda" or name.startswith("cuda:"):
        from verifier.devices.cuda import CudaDevice

        device = CudaDevice(name, data_dir)
    else:
        raise DeviceError(f"there is no device {name!r}; use cpu or cuda:0")
    if not later:
        device.open()
    return device


def party_device(config: dict[str, Any]) -> PartyDevice:
    """Creates the party's half from `Device.config()`."""
    if config["kind"] == "cpu":
        from verifier.devices.cpu_party import CpuPartyDevice

        return CpuPartyDevice(config)
    from verifier.devices.cuda_party import CudaPartyDevice

    return CudaPartyDevice(config)
