"""Model files: where they come from and what they hold."""
