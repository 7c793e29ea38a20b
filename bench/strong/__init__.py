"""Runs with a strong model: the eight everyday tasks on which the compiler gains least, and the ten tasks of StitchCUDA's table."""
