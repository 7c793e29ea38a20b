from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "webapp.review"

    def ready(self) -> None:
        from webapp.review import standing  # models cannot be imported earlier
        from webapp.runs.trace.parts import register

        register(standing.PART)
