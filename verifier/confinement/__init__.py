"""What keeps a party from the host: sandbox, limits, filters, and what they say about themselves."""
