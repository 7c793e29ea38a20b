"""Static files can be hashed, and are collected once, even if several installations start from one checkout at the same time."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

from tests.unit.test_boundaries import circles
from webapp import assets
from webapp.environment import ROOT


def test_installations_that_start_together_collect_once(settings, tmp_path, monkeypatch):
    settings.STATIC_ROOT = tmp_path / "assets" / "collected"
    begun, ended = [], []

    def collecting(command, **options):
        assert len(begun) == len(ended), "another installation is still collecting"
        begun.append(command)
        time.sleep(0.1)
        ended.append(command)

    monkeypatch.setattr(assets, "call_command", collecting)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: assets.collect(), range(4)))
    assert ended == ["collectstatic"]
    assets.collect()
    assert ended == ["collectstatic"], "nothing has changed"


def test_no_module_imports_itself_by_way_of_others():
    """A file's name contains the hash of its text, which contains the names of its imports. Imports in comments are rewritten too."""
    imported = re.compile(r'(?:from|import)\s*\(?\s*"(\.[^"]+\.js)"')
    modules = {str(path.relative_to(ROOT)): path for path in (ROOT / "static").rglob("*.js")}
    found = {
        name: {str((path.parent / other).resolve().relative_to(ROOT)) for other in imported.findall(path.read_text())}
        for name, path in modules.items()
    }
    assert len(found) > 100 and sum(map(len, found.values())) > 200
    assert circles({name: others & set(modules) for name, others in found.items()}) == []
