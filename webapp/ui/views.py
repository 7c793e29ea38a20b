"""Pages about the site itself.

They are the list of pages other than the four destinations, the glossary, and the living style guide, which shows the tokens from the stylesheet and
every component in the form in which pages use it.
"""

from __future__ import annotations

import re
from functools import cache

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from webapp.accounts.signed_in import Request
from webapp.environment import ROOT
from webapp.review.shares import share_of
from webapp.ui import palette
from webapp.ui.context import ADVANCED, ELSEWHERE, in_use, item_of
from webapp.ui.tags import CLASSES, FLAGS, STATUSES, whisker_scale

TOKEN = re.compile(r"^  --([\w-]+): ([^;]+);(?: /\* (.*) \*/)?$", re.MULTILINE)
GROUPS = {  # prefix of token names -> purpose
    "Surfaces and lines": ("page", "surface", "sunken", "raised", "hover", "line", "control-line"),
    "Text and accent": ("text", "accent", "on-accent"),
    "Status": ("ok", "warn", "bad", "info", "idle"),
    "Differences and code": ("added", "removed", "code"),
    "Charts": ("series", "timeline"),
}
FIGURES = [{"ratio": 2.41, "low": 2.36, "high": 2.47}, {"ratio": 1.01, "low": 0.97, "high": 1.05}, {"ratio": 0.82, "low": 0.80, "high": 0.84}]
PROBLEMS = [
    {"line": 12, "message": "`Model` has no method `forward`", "hint": "add `def forward(self, ...)`"},
    {"message": "there is no function `get_inputs`", "hint": "define `def get_inputs(): return [torch.rand(16, 1024)]`"},
]


@cache
def tokens() -> list[tuple[str, str]]:
    """Return (name, value) of every token, in the order of tokens.css."""
    return [(name, value) for name, value, _ in TOKEN.findall((ROOT / "static/css/tokens.css").read_text())]


@login_required
@require_GET
def find(request: Request) -> JsonResponse:
    """Return `{"groups"}` for the palette. Guests with a share link find nothing."""
    found = [] if share_of(request.user) else palette.find(request, request.GET.get("q", "")[: palette.LONGEST])
    response = JsonResponse({"groups": found})
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def advanced(request: Request) -> HttpResponse:
    """List every page other than the four destinations with its purpose. The bar also shows those that the team uses."""
    used = in_use(request.user, request.team)
    items = [item | {"in_bar": not item["used"] or used.get(item["used"], False)} for place in ADVANCED if (item := item_of(place))]
    more = [item | {"in_bar": False} for place in ELSEWHERE if (item := item_of(place))]
    return render(request, "ui/advanced.html", {"places": [*items, *more]})


@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    """Explain the terms that the pages use. It is open to everyone, because published results link to it."""
    return render(request, "ui/glossary.html")


@login_required
@require_GET
def styleguide(request: Request) -> HttpResponse:
    colours = {label: [name for name, _ in tokens() if name.split("-")[0] in starts or name in starts] for label, starts in GROUPS.items()}
    sizes = [(name, value) for name, value in tokens() if re.fullmatch(r"(half|s\d|radius.*|size.*|leading|quick|bar|measure|width)", name)]
    context = {
        "colours": colours,
        "sizes": sizes,
        "statuses": STATUSES,
        "classes": CLASSES,
        "flags": FLAGS,
        "figures": FIGURES,
        "scale": whisker_scale(FIGURES),
        "problems": PROBLEMS,
        "page": Paginator(range(95), 20).get_page(2),
        "now": timezone.now(),
        "tabs": [{"key": "one", "title": "Diff", "href": "#tabs"}, {"key": "two", "title": "Report", "href": "#tabs", "count": 3}],
        "code": "def forward(self, x):\n    return torch.softmax(x, dim=-1)\n",
    }
    return render(request, "ui/styleguide.html", context)
