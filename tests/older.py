"""An installation's database as an earlier version of Stitchwork left it, kept so that later versions can be tested with it.

`python -m tests.older` makes `tests/data/database-DATE.tar.xz`: every kind of object once (tests/unit/webapp/isolation/world.py), imported traces and
a run with a conversation, as SQL by pg_dump; the pages that it filled, with their status; and the hash of each run's exported trace. A file is never
made again by a later version: it would no longer be old.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import io
import json
import logging
import os
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

KEPT = Path(__file__).parent / "data"
TRACES = ("lstm_cell_loop", "rms_norm")


@dataclass(frozen=True)
class Older:
    """A kept database. `pages`: path to the status for the person `reader`. `exports`: run id to the SHA-256 of its exported trace.jsonl."""

    sql: bytes
    reader: str
    pages: dict[str, int]
    exports: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Older:
        with tarfile.open(path) as archive:
            members = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}  # type: ignore[union-attr]
        return cls(members["dump.sql"], **json.loads(members["facts.json"]))

    def write(self, path: Path) -> None:
        facts = {"reader": self.reader, "pages": self.pages, "exports": self.exports}
        with tarfile.open(path, "w:xz", preset=9) as archive:
            for name, content in (("facts.json", json.dumps(facts, indent=1).encode()), ("dump.sql", self.sql)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def exported(run_id: str) -> str:
    """Returns the SHA-256 of the run's exported trace.jsonl."""
    from webapp.runs.models import Run
    from webapp.runs.trace.on_disk import export_trace

    with tempfile.TemporaryDirectory() as folder:
        export_trace(Run.objects.get(pk=run_id), Path(folder) / "trace")
        return hashlib.sha256((Path(folder) / "trace" / "trace.jsonl").read_bytes()).hexdigest()


def client_of(username: str):
    from django.test import Client

    from webapp.accounts.models import User

    client = Client()
    client.force_login(User.objects.get(username=username))
    return client


def _fill() -> tuple[str, dict[str, int]]:
    """Fills an empty database. Returns the reader's name, and the pages with their status."""
    from tests.browser import sample_run
    from tests.browser.addresses import patterns
    from tests.unit.webapp.isolation.world import ROLES, make_world
    from webapp.environment import ROOT
    from webapp.runs.trace.on_disk import import_trace

    world = make_world()
    owner = world.people[ROLES[0]]
    for name in TRACES[:1]:  # the world contains the other one
        import_trace(ROOT / "examples/traces" / name, world.team, owner)
    played = sample_run.create_run(owner)
    sample_run.play(played, candidates=2)
    client, pages = client_of(owner.username), {}
    for pattern in patterns():
        if not pattern.name.startswith(("api:", "learning:")) and world.fills(pattern) is not None:  # trainings are files
            query = urlencode(world.data(pattern))
            path = world.address(pattern) + (f"?{query}" if query else "")
            pages[path] = client.get(path).status_code
    pages[f"/runs/{played.pk}/"] = client.get(f"/runs/{played.pk}/").status_code
    return owner.username, {path: status for path, status in sorted(pages.items()) if status in (200, 301, 302)}


def make(path: Path) -> Older:
    """Makes an installation of the current version in a temporary folder and keeps its database in `path`."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections
    from django.test.utils import setup_test_environment

    from webapp.runs.models import Run
    from webapp.supervisor.postgres import EmbeddedPostgres

    setup_test_environment()
    logging.getLogger("django.request").setLevel(logging.ERROR)  # addresses that take only forms are left out
    postgres = EmbeddedPostgres(settings.DATA_DIR)
    postgres.start()
    try:
        call_command("migrate", verbosity=0, interactive=False)
        reader, pages = _fill()
        exports = {str(pk): exported(str(pk)) for pk in Run.objects.exclude(last_seq=0).values_list("pk", flat=True)}
        command = [str(postgres.bin / "pg_dump"), "--no-owner", "--no-privileges", "--restrict-key=stitchwork", postgres.url()]
        sql = subprocess.run(command, check=True, capture_output=True).stdout
    finally:
        for connection in connections.all():
            connection.close_pool()
        postgres.stop()
    older = Older(sql, reader, pages, exports)
    older.write(path)
    return older


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.older", description="Keep a database as this version leaves it.")
    parser.add_argument("--out", type=Path, default=KEPT / f"database-{datetime.date.today()}.tar.xz")
    out = parser.parse_args().out
    older = make(out)
    print(f"{out}: {out.stat().st_size >> 10} KiB, {len(older.pages)} pages, {len(older.exports)} runs")


if __name__ == "__main__":
    main()
