"""Runs in a database become rows only while their team consents, and are left out again once it has withdrawn its consent."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from agents.rl.data.export import Collected, collect
from agents.rl.data.scrub import Scrubber
from agents.rl.data.sources import folders
from webapp.accounts.models import User
from webapp.runs.models import Run
from webapp.runs.trace.on_disk import import_trace
from webapp.settings import ROOT


@pytest.mark.django_db
def test_only_teams_that_agreed_are_exported(capsys, tmp_path):
    count = iter(range(9))

    def exported() -> Collected:
        folder = tmp_path / str(next(count))
        folder.mkdir()
        call_command("export_agreed", str(folder))
        return collect(folders([folder]) if any(folder.iterdir()) else [], Scrubber({}))

    with pytest.raises(CommandError, match="no team allows"):
        exported()
    ada, bob = User.with_team("ada"), User.with_team("bob")
    run = import_trace(ROOT / "examples/traces/rms_norm", ada.personal_team, ada)
    import_trace(ROOT / "examples/traces/attention", bob.personal_team, bob)
    Run.objects.update(imported=False)
    team = ada.personal_team.slug
    with pytest.raises(CommandError, match="an owner"):
        call_command("training_consent", team, "--agree", "--by", "bob")
    call_command("training_consent", team, "--agree", "--by", "ada")
    found = exported()
    assert {row.run for row in found.rows} == {str(run.pk)} and len(found.rows) == 3 and not found.unusable
    assert all("ada" in row.agreement and row.origin == "database" for row in found.rows)

    run.candidates.filter(number=3).update(verdict="hack")
    assert {row.candidate for row in exported().rows} == {1, 2}
    Run.objects.update(imported=True)
    assert not exported().rows
    call_command("training_consent", team, "--withdraw", "--by", "ada")
    with pytest.raises(CommandError, match="no team allows"):
        exported()
    assert "withdrew" in capsys.readouterr().out
