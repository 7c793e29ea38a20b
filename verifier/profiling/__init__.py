"""Timelines and digests of a few calls: from Nsight Systems, CUPTI or the CPU's torch.profiler."""
