"""From operators to the loops of one kernel, whatever prints it."""
