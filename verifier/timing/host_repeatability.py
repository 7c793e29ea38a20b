"""Stores the results of `python -m verifier calibrate` for this host in the verifier's data folder, one file per device model."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from verifier.devices.base import Device
from verifier.report import CLOCK
from verifier.timing.intervals import DEFAULTS, Repeatability


def _path(data_dir: Path, model: str) -> Path:
    """Returns the path of the file for the current clock. (The folders "calibration" and "repeatability" are not used: their figures are from other
    clocks.)"""
    return data_dir / "native" / f"repeatability-{CLOCK}-{model}.json"


def repeatability(data_dir: Path, device: Device) -> Repeatability:
    """Returns this host's repeatability, or the defaults for its kind of device if it has not been calibrated or the file is damaged."""
    try:
        return Repeatability.model_validate_json(_path(data_dir, device.environment().device_model).read_bytes())
    except (OSError, ValidationError):
        return DEFAULTS[device.kind]


def keep(data_dir: Path, model: str, found: Repeatability) -> Path:
    path = _path(data_dir, model)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(found.model_dump_json(indent=1))
    os.replace(scratch, path)
    return path
