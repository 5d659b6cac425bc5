"""Hit rate of the prefix cache for questions about documents, against what could be had.

    python tools/replay_documents.py

So many clients ask one question after the other, each about some document. No model is run: the
scheduler serves them in virtual time, with steps that take what SmolLM2 takes on two cores.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable

from foreword.config.cache import CacheConfig
from foreword.config.scheduler import SchedulerConfig
from foreword.core.params import SamplingParams
from foreword.core.request import Request
from foreword.core.step import SequenceResult, StepPlan, StepResult
from foreword.kv import KVCache
from foreword.sched import CostModel, Scheduler
from foreword.sim.cost import DEFAULT_PROFILE, read_profile

DOCUMENTS, DOCUMENT_TOKENS, QUESTION_TOKENS = 20, 3000, 20
QUESTIONS, POOL_DOCUMENTS, RUNS = 400, 8, 5
CLIENTS = (1, 4, 16, 64)
PROMPT_TOKENS = DOCUMENT_TOKENS + QUESTION_TOKENS


class Replay:
    """Clients that ask about documents in a given order, each when it has its last answer."""

    def __init__(self, order: list[int], num_clients: int, policy: str) -> None:
        cache = KVCache(CacheConfig(num_blocks=POOL_DOCUMENTS * DOCUMENT_TOKENS // 16), b"replay")
        config = SchedulerConfig(max_model_len=PROMPT_TOKENS + 1, scheduling_policy=policy)
        self._cost = CostModel(read_profile(DEFAULT_PROFILE).coefficients_s)
        self._scheduler = Scheduler(config, cache, self._cost)
        self._left = list(enumerate(order))[::-1]
        self._queued_s: dict[str, float] = {}
        self._now = 0.0
        for _ in range(num_clients):
            self._ask()

    def _ask(self) -> None:
        if self._left:
            number, document = self._left.pop()
            text = [document * 10_000 + position for position in range(DOCUMENT_TOKENS)]
            tokens = (*text, *[10**6 + number] * QUESTION_TOKENS)
            self._queued_s[str(number)] = self._now
            request = Request(str(number), tokens, SamplingParams(), max_tokens=1)
            self._scheduler.add(self._scheduler.prepare(request), self._now)

    def run(self) -> tuple[float, float]:
        """Serve all.

        Returns:
            The share of prompt tokens that came from the cache, and the mean TTFT in seconds.
        """
        waits_s = []
        while (plan := self._scheduler.plan(self._now)) is not None:
            self._now += self._cost.predict(self._scheduler.planned_load)
            for update in self._scheduler.apply(_answers(plan), self._now):
                waits_s.append(self._now - self._queued_s[update.request_id])
                self._ask()
        totals = self._scheduler.stats.totals
        return totals.cached_prompt_tokens / totals.prompt_tokens, statistics.mean(waits_s)


def _answers(plan: StepPlan) -> StepResult:
    return StepResult(
        tuple(SequenceResult(step.seq_id, (0,) * len(step.draws)) for step in plan.sequences)
    )


def whole_documents(
    order: list[int], num_clients: int, choose: Callable[[list[int], list[int]], int], knows: bool
) -> float:
    """The share for a cache of whole documents, one question at a time.

    Args:
        choose: whose turn it is in a line of documents, by its place; it is told what is cached.
        knows: whether the document goes that is asked for last (Belady 1966), not the least
            recently used one.
    """
    line, coming = order[:num_clients], order[num_clients:]
    kept: list[int] = []
    hits = 0
    while line:
        document = line.pop(choose(line, kept))
        line += [coming.pop(0)] if coming else []
        hits += document in kept
        kept = [other for other in kept if other != document] + [document]
        if len(kept) > POOL_DOCUMENTS:
            future = [*line, *coming]
            next_use = {d: future.index(d) if d in future else len(future) for d in kept}
            kept.remove(max(kept, key=next_use.__getitem__) if knows else kept[0])
    return hits * DOCUMENT_TOKENS / (len(order) * PROMPT_TOKENS)


def first_come(line: list[int], kept: list[int]) -> int:
    """The order of arrival."""
    return 0


def cached_first(line: list[int], kept: list[int]) -> int:
    """Whoever asks about a cached document, then the document that is asked for most."""
    asked = Counter(line)
    return min(range(len(line)), key=lambda at: (line[at] not in kept, -asked[line[at]], at))


def main() -> None:
    popularity = {
        "uniform": [1.0] * DOCUMENTS,
        "zipf": [1 / rank for rank in range(1, DOCUMENTS + 1)],
    }
    for name, weights in popularity.items():
        for clients in CLIENTS:
            rows = []
            for seed in range(RUNS):
                order = random.Random(seed).choices(range(DOCUMENTS), weights, k=QUESTIONS)
                rows.append(
                    (
                        *Replay(order, clients, "shortest").run(),
                        *Replay(order, clients, "fcfs").run(),
                        whole_documents(order, clients, first_come, knows=False),
                        whole_documents(order, clients, first_come, knows=True),
                        whole_documents(order, clients, cached_first, knows=True),
                    )
                )
            found = [statistics.median(column) for column in zip(*rows, strict=True)]
            print(
                f"{name}, {clients} clients:",
                "foreword {:.3f} (TTFT {:.2f} s), with fcfs {:.3f} ({:.2f} s), lru {:.3f}, "
                "belady {:.3f}, belady that may reorder {:.3f}".format(*found),
            )


if __name__ == "__main__":
    main()
