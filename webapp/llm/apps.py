from django.apps import AppConfig


class LlmConfig(AppConfig):
    name = "webapp.llm"

    def ready(self) -> None:
        from webapp.llm import calls  # models can't be imported earlier
        from webapp.runs.trace.parts import register

        register(calls.PART)
