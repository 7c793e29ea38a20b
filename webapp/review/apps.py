from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "webapp.review"

    def ready(self) -> None:
        from webapp.review import notices, shares, standing  # models cannot be imported earlier
        from webapp.runs.access import GUESTS
        from webapp.runs.signals import run_opened
        from webapp.runs.trace.parts import register

        register(standing.PART)
        GUESTS.append(shares.shared_run)
        run_opened.connect(notices.on_opened)
