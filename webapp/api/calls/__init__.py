"""Code that all API calls share: authentication, rate limits, paging and errors."""
