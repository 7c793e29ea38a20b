"""Timelines and digests of a few calls, from Nsight Systems, CUPTI or torch.profiler on the CPU."""
