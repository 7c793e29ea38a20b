"""Samples from outside where a process spends its calls: none of it runs in the sampled process."""
