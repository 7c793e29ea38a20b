"""Records the version of the clock that timed each verification, and flags verifications timed by an earlier version."""

import json

from django.db import migrations, models

CURRENT = 2
FLAG = "earlier clock"


def read(apps, schema_editor):
    """Read the version from the stored reports, because neither the column nor the flag can be derived from anything else."""
    Verification, Chunk = apps.get_model("runs", "Verification"), apps.get_model("runs", "ArtefactChunk")
    rows = Verification.objects.filter(kind="verify", result__isnull=False).only("pk", "result_id", "flags")
    for row in list(rows.iterator(chunk_size=1000)):
        data = b"".join(bytes(piece) for piece in Chunk.objects.filter(artefact=row.result_id).order_by("index").values_list("data", flat=True))
        report = (json.loads(data) if data else {}).get("report")
        if not report:
            continue
        timing = report.get("timing")
        row.clock = (timing.get("clock") or 1) if timing else CURRENT if "untried" in report else 1
        if timing and row.clock < CURRENT and FLAG not in row.flags:
            row.flags = [*row.flags, FLAG]
        row.save(update_fields=["clock", "flags"])


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_newest")]

    operations = [
        migrations.AddField(model_name="verification", name="clock", field=models.SmallIntegerField(null=True)),
        migrations.RunPython(read, migrations.RunPython.noop),
    ]
