"""Block tables under any order of operations, against a model that stores the tokens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache

NUM_BLOCKS = 10


class Tables(RuleBasedStateMachine):
    """``slots`` is the pool's memory; whoever reads through a table must find its tokens."""

    @initialize(block_size=st.sampled_from([16, 32, 64]))
    def make(self, block_size: int) -> None:
        config = CacheConfig(num_blocks=NUM_BLOCKS, block_size=block_size)
        self.cache = KVCache(config, b"root")
        self.slots = [[-1] * block_size for _ in range(NUM_BLOCKS)]
        self.tables: list[tuple[BlockTable, list[int]]] = []

    def write(self, table: BlockTable, tokens: list[int], start: int) -> None:
        for position in range(start, len(tokens)):
            index, slot = divmod(position, self.cache.block_size)
            block = table.blocks[index]
            assert self.cache.pool.references(block) == 1, "a shared block is written to"
            self.slots[block][slot] = tokens[position]
        table.publish(len(tokens))

    @rule(stem=st.integers(0, 2), length=st.integers(1, 70), tail=st.integers(0, 2))
    def start(self, stem: int, length: int, tail: int) -> None:
        tokens = [stem] * (length - 1) + [tail]
        table = BlockTable(self.cache, tokens)
        hit = table.match(length - 1)
        if table.shortfall(hit, length) > self.cache.pool.num_available:
            return
        available = self.cache.pool.num_available
        shortfall = table.shortfall(hit, length)
        for source, destination in table.start(hit, length):
            self.slots[destination] = list(self.slots[source])
        assert self.cache.pool.num_available == available - shortfall
        self.tables.append((table, tokens))
        self.write(table, tokens, hit.num_tokens(self.cache.block_size))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 100), tokens=st.lists(st.integers(0, 2), min_size=1, max_size=20))
    def grow(self, which: int, tokens: list[int]) -> None:
        table, known = self.tables[which % len(self.tables)]
        for token in tokens:
            if table.needs_block(len(known)):
                if self.cache.pool.num_available == 0:
                    return
                for source, destination in table.extend(len(known)):
                    self.slots[destination] = list(self.slots[source])
            known.append(token)
            self.write(table, known, len(known) - 1)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 100))
    def fork(self, which: int) -> None:
        table, known = self.tables[which % len(self.tables)]
        copy = list(known)
        self.tables.append((table.fork(copy), copy))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 100))
    def release(self, which: int) -> None:
        table, _ = self.tables.pop(which % len(self.tables))
        table.release()

    @invariant()
    def every_table_reads_its_own_tokens(self) -> None:
        for table, known in self.tables:
            data = [token for block in table.blocks for token in self.slots[block]]
            assert data[: len(known)] == known

    @invariant()
    def every_block_has_one_state(self) -> None:
        usage, pool = self.cache.usage, self.cache.pool
        assert usage.free + usage.cached + usage.referenced == NUM_BLOCKS
        for block in range(NUM_BLOCKS):
            holders = sum(table.blocks.count(block) for table, _ in self.tables)
            assert pool.references(block) == holders
        assert usage.referenced == sum(pool.references(b) > 0 for b in range(NUM_BLOCKS))


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTables = Tables.TestCase
