"""How long does a call take? Processes, blocks, intervals."""
