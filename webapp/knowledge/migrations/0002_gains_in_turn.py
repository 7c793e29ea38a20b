"""Discards lessons about strategies whose gain is the quotient of two speedups over eager that were measured at different times.

From now on, a program is timed in alternation with the one that it was derived from. Lessons from a first program, which was compared with eager
itself, are kept.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Exists, OuterRef


def discard(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    learned, candidates = apps.get_model("knowledge", "Learned"), apps.get_model("runs", "Candidate")
    changed = candidates.objects.filter(run=OuterRef("run"), number=OuterRef("candidate"), parent_number__isnull=False)
    learned.objects.filter(Exists(changed), outcome__in=("gained", "no gain")).update(realised=None, outcome="not measured")


class Migration(migrations.Migration):
    dependencies = [("knowledge", "0001_initial"), ("runs", "0003_candidate_verdict")]
    operations = [migrations.RunPython(discard, migrations.RunPython.noop, elidable=True)]
