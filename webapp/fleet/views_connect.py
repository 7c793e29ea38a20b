"""The *Connect a GPU* page: the command with its token, the device as soon as it is announced, and the endpoint that the command calls."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import alone, audit
from webapp.accounts.signed_in import Request
from webapp.environment import manage_line
from webapp.fleet.doctor import Doctor
from webapp.fleet.enrolling import VALID_SECONDS, NotEnrolled, may_connect, reach, token_for, way
from webapp.fleet.models import ONLINE_FOR, Device

LONGEST_TOKEN = 1000


@login_required
@require_GET
def connect(request: Request) -> HttpResponse:
    """Shows the page. htmx sends the list that it shows (`shown`) and gets only the list of devices, or 204 if nothing has changed."""
    since = parse_datetime(request.GET.get("since", "")) or timezone.now()
    rows: list[dict[str, Any]] = [
        {"device": device, "doctor": Doctor.read(device.doctor, device.device), "new": device.started_at >= since}
        for device in Device.objects.filter(kind="cuda", heartbeat_at__gt=timezone.now() - ONLINE_FOR).order_by("-started_at", "pk")
    ]
    state = ",".join(f"{row['device'].pk}-{row['device'].started_at:%H%M%S}" for row in rows)
    context: dict[str, Any] = {"rows": rows, "since": since.isoformat(), "state": state}
    if request.htmx:
        same = request.GET.get("shown", "") == state
        return HttpResponse(status=204) if same else render(request, "fleet/_connected.html", context)
    allowed = may_connect(request.user)
    context |= {
        "allowed": allowed,
        "way": way(),
        "base": request.build_absolute_uri("/").rstrip("/"),
        "token": token_for(request.user) if allowed else "",
        "minutes": VALID_SECONDS // 60,
        "login": manage_line("verifier_login"),
        "here": manage_line("verifier", "--device", "cuda:0"),
    }
    return render(request, "fleet/connect.html", context)


@csrf_exempt  # called by a host rather than a browser; it has no cookie and authenticates with the token
@require_POST
def enrol(request: Request) -> JsonResponse:
    """Returns what `python -m webapp.fleet.connect` needs for `{"token"}`; 403 with an explanation for an invalid token."""
    try:
        alone.refuse("other hosts")
        given = json.loads(request.body) if len(request.body) <= LONGEST_TOKEN else {}
        user, found = reach(str(given.get("token", "")) if isinstance(given, dict) else "")
    except (NotEnrolled, PermissionDenied) as refused:
        return JsonResponse({"error": str(refused)}, status=403)
    except ValueError:
        return JsonResponse({"error": "The body isn't a JSON object with a token."}, status=400)
    audit.record(user, None, "device.enrolled", str(audit.client_address(request) or ""))
    response = JsonResponse(found)
    response["Cache-Control"] = "no-store"
    return response
