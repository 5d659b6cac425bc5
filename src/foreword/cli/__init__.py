"""The `foreword` command; the composition root."""
