"""What every call to the API shares: who calls, how often, pages, errors."""
