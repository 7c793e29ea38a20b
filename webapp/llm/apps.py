from django.apps import AppConfig


class LlmConfig(AppConfig):
    name = "webapp.llm"

    def ready(self) -> None:
        from webapp.llm import additions, announce, calls, mailbox  # models cannot be imported earlier
        from webapp.runs.pages.additions import CONFIG, WAITS
        from webapp.runs.trace.parts import register
        from webapp.runs.workers.additions import BESIDE, PORTS

        register(calls.PART)
        WAITS.append(additions.LETTER)
        CONFIG["mailboxes"] = additions.mailboxes
        PORTS.mailbox = mailbox.DatabaseMailbox
        BESIDE.append(announce.keep_announcing)
