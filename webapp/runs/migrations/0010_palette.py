"""Adds indexes for Ctrl-K: events by their words, and candidates by kernel names. The event kinds are those of `webapp/ui/palette.sql`."""

from django.db import migrations, models

SAID = "'note.added', 'decision.made', 'diagnosis.made', 'plan.proposed', 'plan.edited', 'candidate.proposed', 'error', 'run.finished'"


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_tags_filters_attention")]

    operations = [
        migrations.AddField(model_name="candidate", name="kernels", field=models.TextField(blank=True, db_default="", default="")),
        migrations.RunSQL(
            f"CREATE INDEX runs_event_said ON runs_event USING gin (to_tsvector('simple', payload)) WHERE kind IN ({SAID})",
            "DROP INDEX runs_event_said",
        ),
    ]
