"""Code shared by all API calls: authentication, rate limits, paging and errors."""
