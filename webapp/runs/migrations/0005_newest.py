"""Adds indexes for a team's newest unarchived runs and for a task's runs, so that queries need not read all other runs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_lists")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["team", "-created_at", "-id"], name="run_listed", condition=models.Q(archived_at=None)),
        ),
        migrations.AddIndex(model_name="run", index=models.Index(fields=["task", "-created_at"], name="run_of_task")),
    ]
