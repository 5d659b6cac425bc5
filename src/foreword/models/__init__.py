"""Models as data: what a file holds, in terms that an executor can run."""
