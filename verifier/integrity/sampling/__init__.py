"""Samples from outside where a process spends its calls. None of this code runs in the sampled process."""
