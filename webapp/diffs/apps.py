from django.apps import AppConfig


class DiffsConfig(AppConfig):
    name = "webapp.diffs"

    def ready(self) -> None:
        from webapp.diffs import candidate, rescue  # models cannot be imported earlier
        from webapp.runs.pages.additions import TABS
        from webapp.runs.workers.additions import RESCUES

        TABS.update(diff=candidate.diff_tab, source=candidate.source_tab)
        RESCUES.append(rescue.rescue_hunks)
