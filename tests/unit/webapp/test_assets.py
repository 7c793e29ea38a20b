"""Static files are collected once, even if several installations start from one checkout at the same time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from webapp import assets


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
