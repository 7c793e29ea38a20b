"""Is an output right? Trials, bounds, expectations."""
