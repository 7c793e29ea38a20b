"""The announced devices: health, queue, capabilities, missing features and how to get them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.accounts.models import Team
from webapp.accounts.signed_in import Request
from webapp.fleet.choices import KINDS, waiting_by_queue
from webapp.fleet.doctor import Doctor
from webapp.fleet.models import Device


@login_required
@require_GET
def devices(request: Request) -> HttpResponse:
    found = device_rows()
    seen = {entry["device"].kind for entry in found if entry["device"].online and not entry["doctor"].unusable}
    context = {"devices": found, "absent": [kind for kind in KINDS if kind not in seen]}
    template = "fleet/_devices.html" if request.htmx else "fleet/devices.html"
    return render(request, template, context)


def device_rows(team: Team | None = None) -> list[dict[str, Any]]:
    """Returns every device with its doctor output and its queue, online devices first. With a team, also counts the waiting jobs that belong to
    it."""
    waiting, ours = waiting_by_queue(), waiting_by_queue(team) if team else {}
    return [
        {
            "device": device,
            "doctor": Doctor.read(device.doctor, device.device),
            "waiting": waiting.get(device.queue, 0),
            "ours": ours.get(device.queue, 0),
        }
        for device in sorted(Device.objects.all(), key=lambda device: (not device.online, device.kind, device.device, device.pk))
    ]
