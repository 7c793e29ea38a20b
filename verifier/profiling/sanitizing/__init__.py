"""Tools that find wrong accesses, run and read."""
