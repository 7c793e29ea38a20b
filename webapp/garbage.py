"""When the web process looks for garbage. A full collection walks every object: Django with all its modules and templates are 270,000, which takes
150 ms in the middle of somebody's request, and a page that makes many objects sets one off. What is there once the process is ready stays until it
ends, so it is loaded beforehand and taken out of the collector's sight; what is left costs a few milliseconds.
"""

from __future__ import annotations

import gc
from pathlib import Path

from django.template import TemplateDoesNotExist, TemplateSyntaxError, engines
from django.template.backends.django import DjangoTemplates
from django.urls import get_resolver

YOUNG = 10_000  # new objects until the youngest are looked at; the default of 700 looks at those of a page that is still being made


def settle() -> None:
    """Load all views and templates, and leave them out of collections from now on."""
    _ = get_resolver().url_patterns
    backend = engines["django"]
    assert isinstance(backend, DjangoTemplates)
    engine = backend.engine
    for folder in engine.dirs:
        for path in Path(folder).rglob("*.html"):
            try:
                engine.get_template(str(path.relative_to(folder)))
            except (TemplateDoesNotExist, TemplateSyntaxError):  # its own page says so when it is asked for
                continue
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
