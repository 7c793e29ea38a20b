"""Garbage collection in the web process.

A full collection walks every object. With all its modules and templates, Django has 270,000 objects, so a full collection takes 150 ms in the middle
of somebody's request, and a page that creates many objects triggers one. Objects that exist when the process is ready stay until it ends. They are
therefore loaded in advance and excluded from collection; collecting the remaining objects takes a few milliseconds.
"""

from __future__ import annotations

import gc
from pathlib import Path

from django.template import TemplateDoesNotExist, TemplateSyntaxError, engines
from django.template.backends.django import DjangoTemplates
from django.urls import get_resolver

YOUNG = 10_000  # allocations before the youngest generation is collected; with the default of 700, it would be collected while a page is being built


def settle() -> None:
    """Loads all views and templates, and excludes them from garbage collection from now on."""
    _ = get_resolver().url_patterns
    backend = engines["django"]
    assert isinstance(backend, DjangoTemplates)
    engine = backend.engine
    for folder in engine.dirs:
        for path in Path(folder).rglob("*.html"):
            try:
                engine.get_template(str(path.relative_to(folder)))
            except (TemplateDoesNotExist, TemplateSyntaxError):  # the page itself reports the error when it is requested
                continue
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
