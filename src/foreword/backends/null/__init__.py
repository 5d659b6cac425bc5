"""A backend without a model: tokens from a hash or a script, KV that can be checked."""

from foreword.backends.null.backend import NullBackend, hashed_token

__all__ = ["NullBackend", "hashed_token"]
