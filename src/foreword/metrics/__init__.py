"""Where a request's time went, and counters for Prometheus."""
