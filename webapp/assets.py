"""Static files whose names contain their hash, so that browsers may cache them forever."""

from __future__ import annotations

import fcntl
import hashlib

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from whitenoise.storage import CompressedManifestStaticFilesStorage

IGNORED = ["hx-*.js", "htmx-4*.js"]  # files of django_htmx that no page uses and whose imports cannot be resolved


class HashedStorage(CompressedManifestStaticFilesStorage):
    """Storage that also rewrites imports between ES modules, so that a page never mixes versions."""

    support_js_module_import_aggregation = True
    manifest_strict = False  # a page that refers to a missing file is rendered without it instead of failing


def collect() -> None:
    """Runs `collectstatic` if a source file has changed since the last run. Installations that start together in one checkout take turns."""
    stamp = settings.STATIC_ROOT.with_suffix(".stamp")
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with stamp.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _sources()
        if stamp.exists() and stamp.read_text() == found:
            return
        stamp.unlink(missing_ok=True)
        call_command("collectstatic", verbosity=0, interactive=False, clear=True, ignore_patterns=IGNORED)
        stamp.write_text(found)


def _sources() -> str:
    """Returns a digest of all source files' paths, times and sizes."""
    sources = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list(IGNORED):
            status = (storage.path(path), storage.get_modified_time(path).timestamp(), storage.size(path))
            sources.update(repr(status).encode())
    return sources.hexdigest()
