"""The native clock: built once from `clock.c`, and loaded by a party before any untrusted source."""
