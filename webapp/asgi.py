"""The ASGI application that Daphne serves: pages and the API over HTTP, and run traces over websockets and server-sent events."""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # pages do little computation, so extra threads would only wait for one another
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
pages = get_asgi_application()  # sets up Django; everything that imports models must come after it

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.sessions import SessionMiddlewareStack  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from webapp.api.mcp import mcp_application  # noqa: E402
from webapp.api.stream import events_stream  # noqa: E402
from webapp.bodies import bound  # noqa: E402
from webapp.garbage import settle  # noqa: E402
from webapp.origins import SameOrigin  # noqa: E402
from webapp.pacing import pace_daphne  # noqa: E402
from webapp.review.sockets import socket_urlpatterns as review_sockets  # noqa: E402
from webapp.runs.sockets import socket_urlpatterns as run_sockets  # noqa: E402

# The applications are cast, because the types of `path` accept only views. Django does not handle streams, because a stream lasts as long as its run
# and would occupy a thread.
http_urlpatterns = [
    path("api/v1/runs/<uuid:run_id>/events/stream", SessionMiddlewareStack(events_stream)),
    path("mcp", cast(Any, mcp_application(pages))),
    re_path("", cast(Any, pages)),
]

application = ProtocolTypeRouter(
    {
        "http": URLRouter(http_urlpatterns),
        "websocket": SameOrigin(AuthMiddlewareStack(URLRouter([*run_sockets, *review_sockets]))),
    }
)

bound()
pace_daphne()
settle()
