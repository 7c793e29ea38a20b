from django.apps import AppConfig


class LeaderboardConfig(AppConfig):
    name = "webapp.leaderboard"

    def ready(self) -> None:
        from webapp.leaderboard import recording  # models cannot be imported earlier
        from webapp.runs.trace.parts import register

        register(recording.PART)
