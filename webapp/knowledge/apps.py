from django.apps import AppConfig


class KnowledgeConfig(AppConfig):
    name = "webapp.knowledge"

    def ready(self) -> None:
        from webapp.knowledge import learned, ports  # models cannot be imported earlier
        from webapp.runs.trace.parts import register
        from webapp.runs.workers.additions import PORTS

        register(learned.PART)
        PORTS.knowledge = ports.knowledge_of
