"""Two to six runs or candidates beside each other."""
