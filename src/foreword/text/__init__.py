"""Tokenising, chat templates, detokenising, stop strings."""
