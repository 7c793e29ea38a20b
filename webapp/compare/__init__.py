"""Side-by-side comparison of two to six runs or candidates."""
