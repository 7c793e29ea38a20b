"""From a kernel as data to the loops that compute it."""
