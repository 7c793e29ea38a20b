"""Measures landscapes. The programs come from our own compiler and run in a trusted process. The product never imports this package, and no
third-party code runs here."""
