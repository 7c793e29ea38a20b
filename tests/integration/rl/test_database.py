"""Runs of a database become rows only where their team agreed, and no longer once it took that back."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg.conninfo import make_conninfo

from agents.rl.export import collect
from agents.rl.scrub import Scrubber
from agents.rl.sources import NoSource, database
from webapp.accounts.models import User
from webapp.runs.models import Run
from webapp.runs.traces_on_disk import import_trace
from webapp.settings import ROOT


def address() -> str:
    s = connection.settings_dict
    return make_conninfo(host=s["HOST"], port=s["PORT"], dbname=s["NAME"], user=s["USER"], password=s["PASSWORD"])


@pytest.mark.django_db(transaction=True)
def test_only_teams_that_agreed_are_exported(capsys):
    with pytest.raises(NoSource, match="no team agreed"):
        list(database(address()))
    ada, bob = User.with_team("ada"), User.with_team("bob")
    run = import_trace(ROOT / "examples/traces/rms_norm", ada.personal_team, ada)
    import_trace(ROOT / "examples/traces/attention", bob.personal_team, bob)
    Run.objects.update(imported=False)
    team = ada.personal_team.slug
    with pytest.raises(CommandError, match="an owner"):
        call_command("training_consent", team, "--agree", "--by", "bob")
    call_command("training_consent", team, "--agree", "--by", "ada")
    found = collect(database(address()), Scrubber({}))
    assert {row.run for row in found.rows} == {str(run.pk)} and len(found.rows) == 3 and not found.unusable
    assert all("ada" in row.agreement and row.origin == "database" for row in found.rows)

    run.candidates.filter(number=3).update(verdict="hack")
    assert {row.candidate for row in collect(database(address()), Scrubber({})).rows} == {1, 2}
    Run.objects.update(imported=True)
    assert not collect(database(address()), Scrubber({})).rows
    call_command("training_consent", team, "--withdraw", "--by", "ada")
    with pytest.raises(NoSource, match="no team agreed"):
        list(database(address()))
    assert "withdrew" in capsys.readouterr().out
