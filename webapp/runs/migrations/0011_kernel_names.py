"""Candidates by the parts of their kernels' names, for Ctrl-K: "fused_bias_gelu" is found by "gelu"."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_palette")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX runs_candidate_kernels ON runs_candidate USING gin (to_tsvector('simple', replace(kernels, '_', ' '))) WHERE kernels <> ''",
            "DROP INDEX runs_candidate_kernels",
        ),
    ]
