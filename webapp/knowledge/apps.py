from django.apps import AppConfig


class KnowledgeConfig(AppConfig):
    name = "webapp.knowledge"

    def ready(self) -> None:
        from webapp.knowledge import learned  # models cannot be imported earlier
        from webapp.runs.trace.parts import register

        register(learned.PART)
