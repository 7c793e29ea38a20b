"""The devices that can be chosen: the existing kinds, whether they are online, and how many jobs are waiting for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db.models import Count

from webapp.accounts.models import Team
from webapp.fleet.models import Device
from webapp.runs.models import Verification

KINDS = {"cpu": "CPU", "cuda": "CUDA GPU"}


@dataclass(frozen=True)
class DeviceChoice:
    kind: str
    devices: list[Device] = field(default_factory=list)
    waiting: int = 0  # number of queued verifications for this kind

    @property
    def online(self) -> list[Device]:
        return [device for device in self.devices if device.online and not (device.doctor or {}).get("unusable")]

    @property
    def needs_sandbox(self) -> str:
        """Describes the missing sandbox if it is the reason why the online verifiers take no jobs."""
        return next((device.needs_sandbox for device in self.devices if device.online and device.needs_sandbox), "") if not self.online else ""

    @property
    def usable(self) -> bool:
        """Returns whether the kind can be chosen. A kind that no verifier has ever announced cannot be chosen. A kind that is offline can be chosen,
        but its jobs wait."""
        return bool(self.devices) or self.kind == "cpu"

    @property
    def label(self) -> str:
        return KINDS[self.kind]


def device_choices() -> list[DeviceChoice]:
    waiting = waiting_by_queue()
    devices = list(Device.objects.order_by("device", "name"))
    choices = []
    for kind in KINDS:
        mine = sorted((device for device in devices if device.kind == kind), key=lambda device: not device.online)
        queues = {device.queue for device in mine}
        choices.append(DeviceChoice(kind=kind, devices=mine, waiting=sum(waiting.get(queue, 0) for queue in queues)))
    return choices


def waiting_by_queue(team: Team | None = None) -> dict[str, int]:
    """Returns the number of verifications that wait in the queues of each kind (for `verify.cuda`, including those of one GPU or model), limited to
    one team if one is given."""
    waiting = Verification.objects.filter(state="queued")
    counted = (waiting.filter(team=team) if team else waiting).values_list("queue").annotate(Count("pk"))
    found: dict[str, int] = {}
    for queue, count in counted.order_by():
        kind = queue.partition(":")[0]
        found[kind] = found.get(kind, 0) + count
    return found
