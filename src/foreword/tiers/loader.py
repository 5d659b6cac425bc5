"""The way of blocks between the pool and the tiers, on the side of the step loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from foreword.core.ports import Backend
from foreword.core.request import Request
from foreword.kv import BlockTable, KVCache
from foreword.kv.radix import Match
from foreword.tiers.store import BlockStore, Fetch


@dataclass(slots=True)
class Load:
    """A request that waits for blocks.

    Attributes:
        table: its own, which holds what the pool has of the prompt, so that it stays meanwhile.
        num_tokens: prompt tokens that came back, by tier.
        seconds: how long it waited.
    """

    request: Request
    table: BlockTable
    fetch: Fetch
    num_tokens: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class TierLoader:
    """Copies computed blocks out of the pool, and back into it for prompts that begin with them.

    What comes back goes into the prefix cache, where the scheduler finds it as if it had never
    left: tiers are nothing that the scheduler knows of. All calls come from the step loop.

    Args:
        compute_s: what loading has to beat: how long it takes to compute so many tokens that follow
            so many others.
    """

    def __init__(
        self,
        cache: KVCache,
        backend: Backend,
        store: BlockStore,
        compute_s: Callable[[int, int], float],
        clock: Callable[[], float],
    ) -> None:
        assert cache.prefixes is not None
        self.store = store
        self._cache = cache
        self._journal = cache.prefixes.journal = []
        self._backend = backend
        self._clock = clock
        self._loads: dict[str, Load] = {}
        self._compute_s = compute_s

    @property
    def num_loads(self) -> int:
        """Requests that wait for blocks."""
        return len(self._loads)

    @property
    def has_work(self) -> bool:
        """Whether a request waits for blocks, or blocks are to be copied out."""
        return bool(self._loads or self._journal)

    def save(self) -> None:
        """Copy out what has been computed since the last time."""
        for name, block in self._journal:
            self.store.put(name, self._backend.read_block(block))
        self._journal.clear()

    def begin(self, request: Request, table: BlockTable) -> bool:
        """Ask for what the pool lacks of a prompt; return whether it is worth waiting.

        Args:
            table: the prompt's, empty; to be left alone until the request has `finished`.
        """
        known, missing = self._missing(request, table)
        if not missing:
            return False
        names = [table.chain.name(index) for index in missing]
        fetch = self.store.fetch(names, self._recompute_s(missing))
        if fetch is not None:
            table.start(known, missing.start * self._cache.block_size)
            self._loads[request.request_id] = Load(request, table, fetch)
        return fetch is not None

    def expect(self, request: Request, table: BlockTable) -> tuple[int, float]:
        """What `begin` would lead to, as far as can be told without asking the tiers.

        Returns:
            Leading tokens that the pool would have then, and the seconds until then.
        """
        _, missing = self._missing(request, table)
        if not missing:
            return 0, 0.0
        digests = (table.chain.digest(index) for index in missing)
        count, seconds = self.store.expect(digests, len(missing), self._recompute_s(missing))
        return (missing.start + count) * self._cache.block_size, seconds

    def finished(self) -> list[Load]:
        """Requests that need not wait longer; what came for them is in the prefix cache."""
        now = self._clock()
        loads = []
        for load in list(self._loads.values()):
            fetch = load.fetch
            overdue = not fetch.done and now > fetch.deadline_s()
            if fetch.done or overdue:
                fetch.abandoned = True
                del self._loads[load.request.request_id]
                self._install(load)
                load.seconds = now - fetch.began_s
                loads.append(load)
        return loads

    def wait(self, timeout_s: float) -> None:
        """Sleep until a block has come, or so long."""
        self.store.wait(timeout_s)

    def close(self) -> None:
        """Write everything that is to be kept."""
        self.save()
        self.store.close()

    def abort(self, request_id: str) -> bool:
        """Forget a request; return whether it was one that waits."""
        load = self._loads.pop(request_id, None)
        if load is not None:
            load.fetch.abandoned = True
            load.table.release()
        return load is not None

    def _install(self, load: Load) -> None:
        """Put what came into blocks of the pool, as many as it can spare."""
        fetch, size, table = load.fetch, self._cache.block_size, load.table
        num_known = len(table.blocks)
        table.release()
        hit = table.match(self._num_whole(load.request) * size).whole
        found = len(hit.nodes)  # no less than was held; others may have computed more meanwhile
        room = self._cache.pool.num_available - table.shortfall(hit, found * size)
        contents = fetch.contents[found - num_known :][: max(0, room)]
        if not contents:
            return
        stop = (found + len(contents)) * size
        table.start(hit, stop)
        for block, (tier, data) in zip(table.blocks[found:], contents, strict=True):
            self._backend.write_block(block, data)
            load.num_tokens[tier] += size
        table.publish(stop)
        table.release()
        self._journal.clear()  # the tiers have them

    def _missing(self, request: Request, table: BlockTable) -> tuple[Match, range]:
        """The full blocks of a prompt that the pool has, and those that tiers might.

        None of the latter where every token is computed in any case.
        """
        stop = self._num_whole(request)
        known = table.match(stop * self._cache.block_size).whole
        all_computed = request.params.prompt_logprobs is not None
        return known, range(0) if all_computed else range(len(known.nodes), stop)

    def _recompute_s(self, missing: range) -> float:
        """How long it takes to compute one of some blocks."""
        size = self._cache.block_size
        return self._compute_s(len(missing) * size, missing.start * size) / len(missing)

    def _num_whole(self, request: Request) -> int:
        """Full blocks of a prompt; its last token is left to compute."""
        return (len(request.prompt_token_ids) - 1) // self._cache.block_size
