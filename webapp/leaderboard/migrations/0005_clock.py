"""Assigns figures from different clocks to different setups. Existing results get the first clock unless their report says otherwise."""

from django.db import migrations, models

import webapp.leaderboard.models
from webapp.leaderboard.counting import COUNT

FLAG = "earlier clock"


def part(apps, schema_editor):
    """Move results from later clocks to separate setups; a run without a confirmed program follows its newest verification."""
    Result, Setup, Verification = (
        apps.get_model(app, name) for app, name in (("leaderboard", "Result"), ("leaderboard", "Setup"), ("runs", "Verification"))
    )
    clocks = {}
    for run, clock, model in Verification.objects.filter(clock__isnull=False).order_by("finished_at").values_list("run_id", "clock", "device_model"):
        if model:
            clocks[run] = clock
    moved = False
    for result in (
        Result.objects.select_related("setup", "verification").only("pk", "run_id", "setup", "verification__clock").iterator(chunk_size=1000)
    ):
        clock = (result.verification.clock if result.verification else None) or clocks.get(result.run_id, 1)
        if clock != 1:
            known = {name: getattr(result.setup, name) for name in ("device_model", "precision", "mode")}
            more = {"device_kind": result.setup.device_kind, "device_name": result.setup.device_name}
            setup, _ = Setup.objects.get_or_create(**known, clock=clock, defaults=more)
            Result.objects.filter(pk=result.pk).update(setup=setup)
            moved = True
    if moved:
        schema_editor.execute(COUNT.format(where=""))


def label(apps, schema_editor):
    """Copy the flags of the verification behind each result to its evidence and exports."""
    schema_editor.execute(
        "UPDATE leaderboard_provenance p SET flags = v.flags FROM leaderboard_result r JOIN runs_verification v ON v.id = r.verification_id"
        " WHERE p.result_id = r.id AND v.flags @> %s::jsonb",
        [f'["{FLAG}"]'],
    )


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0004_covering"), ("runs", "0006_clock")]

    operations = [
        migrations.AddField(model_name="setup", name="clock", field=models.SmallIntegerField(default=1)),
        migrations.AlterField(model_name="setup", name="clock", field=models.SmallIntegerField(default=webapp.leaderboard.models.current_clock)),
        migrations.RemoveConstraint(model_name="setup", name="one_setup"),
        migrations.AddConstraint(
            model_name="setup",
            constraint=models.UniqueConstraint(fields=["device_model", "precision", "mode", "clock"], name="one_setup"),
        ),
        migrations.RunPython(part, migrations.RunPython.noop),
        migrations.RunPython(label, migrations.RunPython.noop),
    ]
