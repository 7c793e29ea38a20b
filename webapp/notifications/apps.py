from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "webapp.notifications"

    def ready(self) -> None:
        from webapp.notifications import announce  # noqa: F401  (connects its receivers)
