"""The same work on other engines: found, run beside foreword, compared."""
