"""Prompts in line that begin alike: what they share is computed once."""

from __future__ import annotations

from collections.abc import Mapping

from foreword.kv import KVCache
from foreword.kv.radix import common_tokens
from foreword.sched.cost import StepLoad
from foreword.sched.fair import FairQueue
from foreword.sched.policy import Policy
from foreword.sched.queue import rank
from foreword.sched.sequence import Sequence

_Key = tuple[bytes, bytes]


class Beginnings:
    """Knows, for each first block of prompts in line, the leader: whoever goes first.

    The others are taken to find what they share with it in the cache. For what some of them share
    beyond that there is no leader: each is taken to compute it.
    """

    def __init__(self, policy: Policy, cache: KVCache, waiting: FairQueue) -> None:
        self._policy = policy
        self._cache = cache
        self._waiting = waiting
        self._leaders: dict[_Key, Sequence] = {}

    def add(self, seq: Sequence) -> None:
        """Note a prompt that is about to wait."""
        key = self._key(seq)
        if key is None:
            return
        leader = self._leaders.get(key)
        if leader is not None and not leader.is_stream:
            shared = self._shared(seq, leader)
            if not self._passes(seq, leader):
                seq.num_shared = shared
                return
            if leader in self._waiting:
                leader.num_shared = shared
                self._waiting.reload(leader)
        self._leaders[key] = seq

    def discard(self, seq: Sequence) -> None:
        """Forget a prompt, leader or not."""
        key = self._key(seq)
        if key is not None and self._leaders.get(key) is seq:
            del self._leaders[key]

    def work(self, seq: Sequence, in_step: Mapping[int, int]) -> StepLoad:
        """What is left for a prompt to compute that is not in line yet.

        Args:
            in_step: tokens of each sequence, by its id, that are being computed.
        """
        key = self._key(seq)
        leader = self._leaders.get(key) if key is not None else None
        if leader is None or leader.is_stream:
            return seq.load
        known = self._shared(seq, leader)
        if self._passes(seq, leader):
            known = min(known, leader.num_computed + in_step.get(leader.seq_id, 0))
        known = max(known, seq.num_expected)
        return StepLoad.prompt(len(seq.token_ids) - known, known)

    def _shared(self, seq: Sequence, leader: Sequence) -> int:
        stop = seq.max_cached_tokens
        return common_tokens(leader.table.chain.span(0, stop), seq.table.chain.span(0, stop))

    def _passes(self, seq: Sequence, leader: Sequence) -> bool:
        """Whether a newcomer goes before the leader; another tenant's turn is not foreseen."""
        if seq.tracked.request.tenant != leader.tracked.request.tenant:
            return False
        return rank(self._policy, seq) < rank(self._policy, leader)

    def _key(self, seq: Sequence) -> _Key | None:
        """None for what takes no whole block from the cache."""
        chain = seq.table.chain
        if self._cache.prefixes is None or seq.max_cached_tokens < self._cache.block_size:
            return None
        return chain.root, chain.key(0)
