"""`make run`: the embedded Postgres and our own processes, started together, kept alive, and stopped together."""
