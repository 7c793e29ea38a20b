"""The newest runs of a team that are not archived, and those of a task, without reading all others."""

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
