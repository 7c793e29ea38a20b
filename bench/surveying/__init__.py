"""Measuring landscapes: our own compiler's programs, run in a process that is trusted. Nothing of the product imports this, and no stranger's code
comes here."""
