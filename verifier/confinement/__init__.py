"""Isolates a party from the host with a sandbox, limits and filters, and reports the status of each."""
