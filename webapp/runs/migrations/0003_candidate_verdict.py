from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0002_append"),
    ]

    operations = [
        migrations.AddField(
            model_name="candidate",
            name="verdict",
            field=models.CharField(blank=True, db_default="", default="", max_length=12),
        ),
    ]
