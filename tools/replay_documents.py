"""Hit rate of the prefix cache for questions about documents, against what could be had.

    python tools/replay_documents.py

No model is run: prompts pass through the block tables as the scheduler would have them.
"""

from __future__ import annotations

import random
import statistics

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache

DOCUMENTS, DOCUMENT_TOKENS, QUESTION_TOKENS = 20, 3000, 20
QUESTIONS, POOL_DOCUMENTS, RUNS = 400, 8, 5
PROMPT_TOKENS = DOCUMENT_TOKENS + QUESTION_TOKENS


def ours(order: list[int]) -> float:
    """Share of prompt tokens that the cache gives."""
    cache = KVCache(CacheConfig(num_blocks=POOL_DOCUMENTS * DOCUMENT_TOKENS // 16), b"replay")
    cached = 0
    for number, document in enumerate(order):
        text = [document * 10_000 + position for position in range(DOCUMENT_TOKENS)]
        tokens = text + [10**6 + number] * QUESTION_TOKENS
        table = BlockTable(cache, tokens)
        hit = table.match(len(tokens) - 1)
        cache.count_hit(hit)
        table.start(hit, len(tokens))
        table.publish(len(tokens))
        table.release()
        cached += hit.num_tokens(16)
    return cached / (len(order) * PROMPT_TOKENS)


def whole_documents(order: list[int], least: str) -> float:
    """The same for a cache of whole documents; ``least``: lru, or the next use (Belady 1966)."""
    kept: list[int] = []
    hits = 0
    for at, document in enumerate(order):
        hits += document in kept
        kept = [other for other in kept if other != document] + [document]
        if len(kept) > POOL_DOCUMENTS:
            later = order[at + 1 :]
            unused = len(later)
            key = {d: later.index(d) if d in later else unused for d in kept}
            kept.remove(kept[0] if least == "lru" else max(kept, key=key.__getitem__))
    return hits * DOCUMENT_TOKENS / (len(order) * PROMPT_TOKENS)


def most_popular(order: list[int]) -> float:
    """The same for one that keeps the documents that are asked for most: no replay, no luck."""
    seen: set[int] = set()
    hits = 0
    for document in order:
        hits += document in seen and document < POOL_DOCUMENTS
        seen.add(document)
    return hits * DOCUMENT_TOKENS / (len(order) * PROMPT_TOKENS)


def main() -> None:
    popularity = {
        "uniform": [1.0] * DOCUMENTS,
        "zipf": [1 / rank for rank in range(1, DOCUMENTS + 1)],
    }
    for name, weights in popularity.items():
        rows = []
        for seed in range(RUNS):
            order = random.Random(seed).choices(range(DOCUMENTS), weights, k=QUESTIONS)
            lru, belady = (whole_documents(order, least) for least in ("lru", "next use"))
            rows.append((ours(order), lru, most_popular(order), belady))
        found = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(name, "foreword {:.3f}, lru {:.3f}, popular {:.3f}, belady {:.3f}".format(*found))


if __name__ == "__main__":
    main()
