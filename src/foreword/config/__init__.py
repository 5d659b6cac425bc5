"""Settings: frozen, validated, resolved once."""
