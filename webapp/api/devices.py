"""The available devices with their queues, and the available models by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Router, Schema
from pydantic import Field

from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.problems import refusals
from webapp.fleet.choices import device_choices, waiting_by_queue
from webapp.fleet.doctor import Doctor
from webapp.fleet.models import Device
from webapp.llm.models import Profile

router = Router(tags=["devices"])


class DeviceRow(Schema):
    kind: str = Field(description="cpu or cuda.")
    device: str = Field(description='What to request: "cpu" or "cuda:0"; "cuda" takes any GPU.')
    name: str = Field(examples=["NVIDIA H200"])
    model: str = Field(description="Key for comparisons.", examples=["h200"])
    online: bool = Field(description="Its verifier reported within the last 20 s.")
    usable: bool
    unusable_because: str
    busy: bool
    waiting: int = Field(description="Verifications in the queue of its kind.")
    sandbox: str = Field(description="What confines programs: bubblewrap, or only process isolation.")
    facts: dict[str, str] = Field(description="Compiler, PyTorch, driver, memory and the like.")
    missing: list[str] = Field(description="What its host lacks, each with instructions to get it.")
    heartbeat_at: datetime


class KindRow(Schema):
    kind: str
    online: int = Field(description="Devices that take work now.")
    waiting: int
    usable: bool = Field(description="Can be requested; if no such device is online, the verification stays queued.")


class ModelRow(Schema):
    name: str = Field(description="For `planner`, `coder` and `judge`.")
    model: str


class Devices(Schema):
    kinds: list[KindRow]
    devices: list[DeviceRow]
    models: list[ModelRow] = Field(description='Profiles of language models; "built-in" is always there.')


@router.get("", response={200: Devices, **refusals(401, 403, 422, 429)}, operation_id="list_devices", summary="List devices")
def list_devices(request: Request) -> Any:
    """Returns the devices with their queues. They belong to the installation, so everyone sees the same list."""
    needs(request, "read", "verify", "submit")
    waiting = waiting_by_queue()
    devices = sorted(Device.objects.all(), key=lambda d: (not d.online, d.kind, d.device, d.pk))
    kinds = [{"kind": c.kind, "online": len(c.online), "waiting": c.waiting, "usable": c.usable} for c in device_choices()]
    models = [{"name": profile.name, "model": profile.model or profile.kind} for profile in Profile.objects.order_by("name")]
    return {"kinds": kinds, "devices": [_row(device, waiting) for device in devices], "models": models}


def _row(device: Device, waiting: dict[str, int]) -> dict[str, Any]:
    doctor = Doctor.read(device.doctor, device.device)
    names = ("kind", "device", "name", "model", "online", "heartbeat_at")
    return {name: getattr(device, name) for name in names} | {
        "usable": not doctor.unusable,
        "unusable_because": doctor.unusable,
        "busy": bool(device.busy_with) and device.online,
        "waiting": waiting.get(device.queue, 0),
        "sandbox": doctor.sandbox,
        "facts": dict(doctor.facts),
        "missing": [f"{check.name}: {check.fix or check.found}" for check in doctor.missing] + doctor.lacking,
    }
