"""The KV cache's book-keeping: which block holds which tokens of which sequence.

Only indices and identities live here; the numbers themselves are the backend's.
"""

from foreword.kv.cache import KVCache, KVUsage
from foreword.kv.identity import root_digest
from foreword.kv.pool import OutOfBlocksError
from foreword.kv.table import BlockTable
from foreword.kv.watch import Watch

__all__ = ["BlockTable", "KVCache", "KVUsage", "OutOfBlocksError", "Watch", "root_digest"]
