"""OpenAI-compatible HTTP server. It translates; the engine decides."""
