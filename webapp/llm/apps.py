from django.apps import AppConfig


class LlmConfig(AppConfig):
    name = "webapp.llm"

    def ready(self) -> None:
        from webapp.llm import calls  # models cannot be imported earlier
        from webapp.runs.trace.parts import register

        register(calls.PART)
