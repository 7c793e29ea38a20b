import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0002_teams_tokens_audit"),
        ("runs", "0003_candidate_verdict"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Desk",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="desk", serialize=False, to="runs.run"
                    ),
                ),
                ("seq", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Wishes",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="wishes",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("muted", models.JSONField(default=list)),
                ("mail", models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.TextField()),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("edited_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
                ("author", models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("mentions", models.ManyToManyField(related_name="mentioned_in", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Presence",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("place", models.CharField(blank=True, max_length=60)),
                ("seen_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="runs.run")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name="Revision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.TextField()),
                ("until", models.DateTimeField(default=django.utils.timezone.now)),
                ("comment", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="revisions", to="review.comment")),
            ],
        ),
        migrations.CreateModel(
            name="Thread",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=10)),
                ("candidate", models.IntegerField(null=True)),
                ("anchor", models.JSONField()),
                ("seq", models.BigIntegerField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("last_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("resolved_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "resolved_by",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="threads", to="runs.run")),
                ("team", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="accounts.team")),
            ],
        ),
        migrations.AddField(
            model_name="comment",
            name="thread",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="comments", to="review.thread"),
        ),
        migrations.CreateModel(
            name="Verdict",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("candidate", models.IntegerField()),
                (
                    "value",
                    models.CharField(
                        choices=[
                            ("accepted", "accepted"),
                            ("questioned", "questioned"),
                            ("hack", "hack"),
                            ("retracted", "retracted"),
                            ("withdrawn", "withdrawn"),
                        ],
                        max_length=12,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("seq", models.BigIntegerField()),
                ("by", models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="verdicts", to="runs.run")),
            ],
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=10)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("read_at", models.DateTimeField(null=True)),
                ("actor", models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("comment", models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, to="review.comment")),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="runs.run")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="notifications", to=settings.AUTH_USER_MODEL)),
                ("thread", models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, to="review.thread")),
                ("verdict", models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, to="review.verdict")),
            ],
        ),
        migrations.CreateModel(
            name="ReadMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="runs.run")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("user", "run"), name="one_mark_a_reader")],
            },
        ),
        migrations.CreateModel(
            name="Share",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("place", models.CharField(blank=True, max_length=500)),
                ("comments", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
                ("opened", models.IntegerField(default=0)),
                ("last_opened_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="shares", to="runs.run")),
                ("team", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="accounts.team")),
            ],
            options={
                "indexes": [models.Index(fields=["run", "-created_at"], name="review_shar_run_id_d1458f_idx")],
            },
        ),
        migrations.AddIndex(
            model_name="thread",
            index=models.Index(fields=["run", "seq"], name="review_thre_run_id_182f58_idx"),
        ),
        migrations.AddIndex(
            model_name="thread",
            index=models.Index(fields=["team", "resolved_at", "-last_at"], name="review_thre_team_id_748a8b_idx"),
        ),
        migrations.AddIndex(
            model_name="comment",
            index=models.Index(fields=["author", "-at"], name="review_comm_author__d316e2_idx"),
        ),
        migrations.AddIndex(
            model_name="verdict",
            index=models.Index(fields=["run", "candidate", "-id"], name="review_verd_run_id_c9c37d_idx"),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(fields=["user", "-at"], name="review_noti_user_id_b19811_idx"),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(condition=models.Q(("read_at", None)), fields=["user"], name="review_unread"),
        ),
    ]
