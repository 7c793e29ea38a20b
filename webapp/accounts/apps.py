from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "webapp.accounts"

    def ready(self) -> None:
        from webapp.accounts import on_record  # noqa: F401  (connects its receivers)
