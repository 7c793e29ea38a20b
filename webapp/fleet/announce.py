"""Announces a verifier's device."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from verifier.report import Environment
from webapp.environment import ROOT, kept_secret
from webapp.fleet.models import Device
from webapp.runs.jobs import queue_for

log = logging.getLogger(__name__)

DOCTOR_SECONDS = 120


class Announcement:
    """The row of one verifier, under a random name that is stored in its DATA_DIR and is never a host name."""

    def __init__(self, device: str, data: Path):
        self.device, self.data = device, data
        self.kind = device.partition(":")[0]
        self.worker = f"{kept_secret(data, 'worker_name')[:16]}-{device.replace(':', '-')}"
        self.busy_with = ""

    def announce(self, environment: Environment | None, unusable: str = "", needs_sandbox: str = "") -> Device:
        """Announces the device. `environment` describes where the judge measures. It is None if the device cannot be used, for the reason given in
        `unusable`. While jobs wait for a sandbox, `needs_sandbox` says which of its layers this host lacks and how to add them."""
        said = ask_doctor(self.device, self.data)
        if environment is not None:
            said = {**said, **environment.model_dump(exclude_none=True)}  # the doctor reports "" for anything that it could not open
        if unusable:
            said = {**said, "unusable": unusable, "needs_sandbox": needs_sandbox}
        known = {
            "kind": self.kind,
            "device": self.device,
            "name": environment.device_name[:120] if environment else f"{self.kind.upper()} {platform.machine()}",
            "model": environment.device_model[:60] if environment else self.device,
            "queue": queue_for(self.kind),
            "doctor": said,
            "busy_with": "",
            "started_at": timezone.now(),
            "heartbeat_at": timezone.now(),
        }
        row, _ = Device.objects.update_or_create(worker=self.worker, defaults=known)
        return row

    def beat(self) -> None:
        Device.objects.filter(worker=self.worker).update(heartbeat_at=timezone.now(), busy_with=self.busy_with)

    def leave(self) -> None:
        """Marks the device offline immediately after a clean shutdown, instead of letting its heartbeat expire."""
        Device.objects.filter(worker=self.worker).update(heartbeat_at=timezone.now() - timedelta(hours=1), busy_with="")


DOCTOR_KEEPS = (
    *("PATH", "HOME", "LANG", "PYTHONPATH"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH", "STITCH_NSYS", "STITCH_NSYS_LIBRARIES"),
)


def ask_doctor(device: str, data: Path) -> dict[str, Any]:
    """Runs `python -m verifier doctor --json` in a process that receives only the environment variables it needs."""
    command = [sys.executable, "-m", "verifier", "doctor", "--json", "--device", device]
    environment = {name: os.environ[name] for name in DOCTOR_KEEPS if name in os.environ} | {"DATA_DIR": str(data)}
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=DOCTOR_SECONDS)
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except (subprocess.TimeoutExpired, ValueError) as error:
        log.warning("the doctor gave no answer: %s", type(error).__name__)
        return {}
