"""The URL configuration, with one include per app."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def health(request: HttpRequest) -> HttpResponse:
    """Responds once pages can be served. The supervisor waits for this."""
    return HttpResponse("ok\n", content_type="text/plain")


handler500 = "webapp.outage.server_error"

urlpatterns = [
    path("healthz", health),
    path("", include("webapp.api.urls")),
    path("", include("webapp.accounts.sign_in.urls_sign_in")),
    path("", include("webapp.accounts.urls")),
    path("", include("webapp.tasks.urls")),
    path("", include("webapp.notifications.urls")),
    path("", include("webapp.review.urls")),  # comes before the runs, because their URLs below a candidate accept any word
    path("", include("webapp.runs.urls")),
    path("", include("webapp.diffs.urls")),
    path("", include("webapp.compare.urls")),
    path("", include("webapp.leaderboard.urls")),
    path("", include("webapp.fleet.urls")),
    path("", include("webapp.arena.urls")),
    path("", include("webapp.knowledge.urls")),
    path("", include("webapp.llm.urls")),
    path("", include("webapp.learning.urls")),
    path("", include("webapp.ui.urls")),
]
