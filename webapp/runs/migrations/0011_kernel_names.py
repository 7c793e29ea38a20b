"""Indexes candidates by the parts of their kernel names for Ctrl-K, so that "gelu" finds "fused_bias_gelu"."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_palette")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX runs_candidate_kernels ON runs_candidate USING gin (to_tsvector('simple', replace(kernels, '_', ' '))) WHERE kernels <> ''",
            "DROP INDEX runs_candidate_kernels",
        ),
    ]
