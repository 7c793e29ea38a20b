"""Implements `make run`: starts the embedded Postgres and our own processes, keeps them alive, and stops them together."""
