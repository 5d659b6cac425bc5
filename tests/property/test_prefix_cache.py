"""The prefix cache against a list of what it must hold, searched from end to end."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foreword.config.cache import CacheConfig
from foreword.errors import InvalidRequestError
from foreword.kv import BlockTable, KVCache, Watch
from foreword.kv.identity import TokenChain, salted

BLOCK = 16
NUM_BLOCKS = 12

tokens_of_prompts = st.builds(
    lambda stem, length, tail: [stem] * length + tail,
    st.integers(0, 2),
    st.integers(0, 60),
    st.lists(st.integers(0, 2), min_size=1, max_size=20),
)
salts = st.sampled_from(["", "", "alice"])


@dataclass(frozen=True)
class Resident:
    """A block whose contents are known, with all tokens from the prompt's first to its last."""

    salt: str
    tokens: tuple[int, ...]

    def follows(self, other: Resident) -> bool:
        """Whether ``other`` is the block right before this one."""
        start = (len(self.tokens) - 1) // BLOCK * BLOCK
        return self.salt == other.salt and self.tokens[:start] == other.tokens


def shared(one: tuple[int, ...], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Prefixes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCache(CacheConfig(num_blocks=NUM_BLOCKS), b"root")
        self.resident: dict[int, Resident] = {}  # by block
        self.tables: list[tuple[BlockTable, list[int], str]] = []
        self.waiting: list[tuple[BlockTable, list[int], str]] = []
        self.pins: dict[str, tuple[list[int], float]] = {}
        self.line: dict[Watch, Resident] = {}  # what each prompt in line may find
        self.now = 0.0

    @rule(tokens=tokens_of_prompts, salt=salts)
    def run(self, tokens: list[int], salt: str) -> None:
        table = BlockTable(self.cache, tokens, salt)
        hit = table.match(len(tokens))
        if table.shortfall(hit, len(tokens)) > self.cache.pool.num_available:
            return
        self.renew()
        whole = len(hit.nodes)
        table.start(hit, len(tokens))
        for block in table.blocks[whole:]:
            self.taken(block, table.blocks[:whole])
        table.publish(len(tokens))
        self.tables.append((table, tokens, salt))
        for index in range(len(tokens) // BLOCK):
            self.known(table.blocks[index], Resident(salt, tuple(tokens[: (index + 1) * BLOCK])))

    def taken(self, block: int, just_held: list[int]) -> None:
        """A block was handed out: if it held something, that had to be allowed."""
        entry = self.resident.pop(block, None)
        if entry is None:
            return
        assert block not in self.held | set(just_held) | self.pinned, "in use"
        assert not any(other.follows(entry) for other in self.resident.values()), "no leaf"
        if self.is_awaited(entry):
            stays = self.held | set(just_held) | self.pinned
            for other in [self.resident[b] for b in self.resident.keys() - stays]:
                leaf = not any(another.follows(other) for another in self.resident.values())
                assert self.is_awaited(other) or not leaf, "nobody in line would have missed it"

    def is_awaited(self, entry: Resident) -> bool:
        """Whether a prompt in line begins with a whole block and all that comes before it."""
        return len(entry.tokens) % BLOCK == 0 and any(
            wanted.salt == entry.salt and wanted.tokens[: len(entry.tokens)] == entry.tokens
            for wanted in self.line.values()
        )

    @rule(tokens=tokens_of_prompts, salt=salts, limit=st.integers(0, 90))
    def watch(self, tokens: list[int], salt: str, limit: int) -> None:
        limit = min(limit, len(tokens))
        watch = BlockTable(self.cache, tokens, salt).watch(limit)
        assert watch is not None
        self.line[watch] = Resident(salt, tuple(tokens[:limit]))

    @precondition(lambda self: self.line)
    @rule(which=st.integers(0, 100))
    def unwatch(self, which: int) -> None:
        watch = list(self.line)[which % len(self.line)]
        del self.line[watch]
        self.cache.unwatch(watch)

    @rule()
    def renew(self) -> None:
        """Watches tell what would be found; of a part of a block, what there once was."""
        before = {watch: watch.num_tokens // BLOCK for watch in self.line}
        renewed = self.cache.renewed()
        for watch, wanted in self.line.items():
            same = [e.tokens for e in self.resident.values() if e.salt == wanted.salt]
            longest = max((shared(known, list(wanted.tokens)) for known in same), default=0)
            assert watch.num_tokens // BLOCK == longest // BLOCK
            assert watch in renewed or watch.num_tokens // BLOCK == before[watch]

    def known(self, block: int, entry: Resident) -> None:
        """Contents were offered: they are held once, in the block that had them first."""
        same = [b for b, other in self.resident.items() if other == entry]
        assert same in ([], [block]), "held twice"
        self.resident[block] = entry

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 100))
    def release(self, which: int) -> None:
        table, tokens, salt = self.tables.pop(which % len(self.tables))
        blocks, end = list(table.blocks), Resident(salt, tuple(tokens))
        table.release()
        if len(tokens) % BLOCK and not any(
            other.salt == salt
            and (len(other.tokens) - 1) // BLOCK == len(tokens) // BLOCK
            and other.tokens[: len(tokens)] == end.tokens
            for other in self.resident.values()
        ):
            self.resident[blocks[-1]] = end

    @rule(tokens=tokens_of_prompts, salt=salts, time_s=st.integers(1, 9))
    def pin(self, tokens: list[int], salt: str, time_s: int) -> None:
        chain = TokenChain(salted(b"root", salt), tokens, BLOCK)
        name = f"pin-{len(self.pins)}-{self.now}"
        paths = [tuple(tokens[: stop + BLOCK]) for stop in range(0, len(tokens) - BLOCK + 1, BLOCK)]
        wanted = [b for b, e in self.resident.items() if e.salt == salt and e.tokens in paths]
        assert self.cache.pins is not None
        try:
            pin = self.cache.pins.add(name, chain, len(tokens), self.now + time_s)
        except InvalidRequestError:
            assert len(self.pinned | set(wanted)) > NUM_BLOCKS // 2
        else:
            assert pin.num_tokens == len(wanted) * BLOCK
            self.pins[name] = wanted, self.now + time_s
            assert len(self.pinned) <= NUM_BLOCKS // 2

    @rule()
    def tick(self) -> None:
        self.now += 1
        self.cache.tick(self.now)
        self.pins = {name: pin for name, pin in self.pins.items() if pin[1] > self.now}

    @rule()
    def clear(self) -> None:
        stays = self.held | self.pinned
        gone = self.resident.keys() - stays
        assert self.cache.clear() == len(gone)
        self.resident = {block: e for block, e in self.resident.items() if block in stays}

    @rule(tokens=tokens_of_prompts, salt=salts, limit=st.integers(0, 90))
    def match(self, tokens: list[int], salt: str, limit: int) -> None:
        limit = min(limit, len(tokens))
        same = [e.tokens for e in self.resident.values() if e.salt == salt]
        longest = max((shared(known, tokens[:limit]) for known in same), default=0)
        hit = BlockTable(self.cache, tokens, salt).match(limit)
        assert hit.num_tokens(BLOCK) == longest
        for index, node in enumerate(hit.nodes):
            expected = Resident(salt, tuple(tokens[: (index + 1) * BLOCK]))
            assert self.resident[node.block] == expected

    @rule(tokens=tokens_of_prompts, salt=salts)
    def wait(self, tokens: list[int], salt: str) -> None:
        table = BlockTable(self.cache, tokens, salt)
        table.match(len(tokens))
        self.waiting.append((table, tokens, salt))

    @precondition(lambda self: self.waiting)
    @rule(limit=st.integers(0, 90), more=st.lists(st.integers(0, 2)))
    def match_again(self, limit: int, more: list[int]) -> None:
        """What an earlier match found changes nothing, whatever has happened since."""
        for table, tokens, salt in self.waiting:
            most = min(limit, len(tokens))
            assert table.match(most) == BlockTable(self.cache, tokens, salt).match(most)
            tokens += more

    @property
    def held(self) -> set[int]:
        return {block for table, _, _ in self.tables for block in table.blocks}

    @property
    def pinned(self) -> set[int]:
        return {block for blocks, _ in self.pins.values() for block in blocks}

    @invariant()
    def counts_are_exact(self) -> None:
        usage, prefixes, pins = self.cache.usage, self.cache.prefixes, self.cache.pins
        assert prefixes is not None
        assert pins is not None
        cached = self.resident.keys() - self.held
        assert len(prefixes) == len(self.resident)
        assert (usage.referenced, usage.cached) == (len(self.held), len(cached))
        assert usage.free == NUM_BLOCKS - len(self.held) - len(cached)
        assert self.cache.pool.num_available == usage.free + len(cached - self.pinned)
        assert pins.num_blocks == len(self.pinned)
        salts = {e.salt for e in self.resident.values()} | {e.salt for e in self.line.values()}
        assert len(prefixes._tree._roots) == len(salts)


Prefixes.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestPrefixes = Prefixes.TestCase
