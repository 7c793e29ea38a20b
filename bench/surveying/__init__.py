"""Measures landscapes: our own compiler's programs, run in a trusted process. No part of the product imports this, and no stranger's code comes
here."""
