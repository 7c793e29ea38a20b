"""The native clock: built once from `clock.c`, loaded by a party before any stranger's source."""
