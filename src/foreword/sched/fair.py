"""Fair shares among tenants, whatever the order of each one's prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from foreword.kv import KVCache, Watch
from foreword.sched.cost import StepLoad
from foreword.sched.growth import Growth
from foreword.sched.policy import Policy
from foreword.sched.queue import Line, WaitingQueue
from foreword.sched.sequence import Sequence

_QUANTUM = 256  # tokens of a turn
_ANSWER_WEIGHT = 2  # of a token of an answer: it costs about as much as two of a prompt


class Turns:
    """Deficit round robin over tokens (Shreedhar and Varghese, SIGCOMM 1995).

    Each tenant has as many tokens in a round, one tenant after the other. Who takes more, since a
    chunk is not cut for it, has less in the next. So a tenant is in the round ``taken // quantum``,
    and whoever is in the earliest is next. A newcomer begins with the round that is being served.
    """

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def keep(self, tenants: Collection[str]) -> None:
        """Forget all other tenants; those that are new come last."""
        self._taken = {name: taken for name, taken in self._taken.items() if name in tenants}
        begun = min(map(_round, self._taken.values()), default=0)
        for name in tenants:
            self._taken.setdefault(name, begun * _QUANTUM)

    def first(self, tenants: Collection[str]) -> str:
        """Whose turn it is, among some that are kept."""
        return min(
            (name for name in self._taken if name in tenants),
            key=lambda name: _round(self._taken[name]),
        )

    def take(self, tenant: str, num_tokens: int) -> None:
        """Note that a tenant had tokens of a step, or will have them."""
        self._taken[tenant] += num_tokens


class FairQueue:
    """A `WaitingQueue` for each tenant. With one tenant it is that queue.

    Streams have a token in every step, whose ever they are. But what a prompt will generate counts
    when it begins, as far as its tenant's last answers tell: who asks for long ones begins fewer
    (Sheng et al., Fairness in Serving Large Language Models, 2024).

    What the cache has of those that wait is watched: they move in their line as it changes.
    """

    def __init__(self, policy: Policy, cache: KVCache) -> None:
        self._policy = policy
        self._cache = cache
        self._watched: dict[Watch, Sequence] = {}
        self._queues: dict[str, WaitingQueue] = {}
        self._answers: dict[str, Growth] = {}  # of the tenants in the last line
        self._turns = Turns()
        self._nobody = WaitingQueue(policy)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._queues.values())

    def __contains__(self, seq: Sequence) -> bool:
        queue = self._queues.get(_tenant(seq))
        return queue is not None and seq in queue

    @property
    def num_tokens(self) -> int:
        """See `WaitingQueue`."""
        return sum(queue.num_tokens for queue in self._queues.values())

    @property
    def longest_waiting(self) -> Sequence | None:
        """The oldest of those that were added first by each tenant."""
        firsts = (queue.longest_waiting for queue in self._queues.values())
        return min((seq for seq in firsts if seq), key=lambda seq: seq.rank, default=None)

    def add(self, seq: Sequence) -> None:
        """Put a sequence in its place."""
        tenant = _tenant(seq)
        if tenant not in self._queues:
            self._queues[tenant] = WaitingQueue(self._policy)
        seq.watch = seq.table.watch(seq.max_cached_tokens)
        if seq.watch is not None:
            seq.num_expected = seq.watch.num_tokens
            self._watched[seq.watch] = seq
        self._queues[tenant].add(seq)

    def reload(self, seq: Sequence) -> None:
        """See `WaitingQueue`."""
        self._queues[_tenant(seq)].reload(seq)

    def follow_cache(self, part_way: Iterable[Sequence]) -> None:
        """Move those of which the cache has more or less than before.

        But whoever lacks what a part-way prompt computes next stays behind it, and does not compute
        that too.
        """
        renewed = self._cache.renewed()
        coming = {seq.table.end for seq in part_way} if renewed else set()
        for watch in renewed:
            if (watch.node, watch.key) not in coming:
                seq = self._watched[watch]
                seq.num_expected = watch.num_tokens
                self.reload(seq)

    def discard(self, seq: Sequence) -> None:
        """Take a sequence out, if it is there."""
        if seq.watch is not None:
            self._cache.unwatch(seq.watch)
            del self._watched[seq.watch]
            seq.watch = None
        queue = self._queues.get(_tenant(seq))
        if queue is not None:
            queue.discard(seq)
            if not queue:
                del self._queues[_tenant(seq)]

    def line(self, part_way: Iterable[Sequence]) -> FairLine:
        """What a step may serve: some part-way prompts, and those that wait."""
        of_tenant: dict[str, list[Sequence]] = {}
        for seq in part_way:
            of_tenant.setdefault(_tenant(seq), []).append(seq)
        lines = self._lines(of_tenant)
        self._turns.keep(lines)
        self._answers = {tenant: self._answers.get(tenant) or Growth() for tenant in lines}
        return FairLine(lines, self._turns)

    def take(self, seq: Sequence, num_tokens: int) -> None:
        """Note that a sequence of the line had tokens of a step."""
        self._turns.take(_tenant(seq), num_tokens)

    def begin(self, seq: Sequence) -> None:
        """Note that a prompt of the line begins: what it will generate counts, too."""
        num_tokens = len(seq.draws) * self._answers[_tenant(seq)].left(seq.num_left)
        self._turns.take(_tenant(seq), _ANSWER_WEIGHT * num_tokens)

    def end(self, seq: Sequence) -> None:
        """Note that a sequence of any tenant has ended, and learn from what it has generated."""
        answers = self._answers.get(_tenant(seq))
        if answers is not None:
            answers.observe(len(seq.token_ids) - seq.tracked.num_prompt_tokens, 0, 1)

    def around(self, seq: Sequence) -> tuple[list[StepLoad], list[Sequence]]:
        """The work of those that go before a sequence that is not here, and who goes after it.

        Of each other tenant, as much goes before it as of its own.
        """
        own = self._queues.get(_tenant(seq))
        ahead, behind = own.around(seq) if own else ([], [])
        share = sum(load.num_tokens for load in ahead) + seq.num_uncached
        for queue in self._queues.values():
            if queue is not own:
                before, after = queue.split(share)
                ahead += before
                behind += after
        return ahead, behind

    def _lines(self, part_way: dict[str, list[Sequence]]) -> dict[str, Line]:
        return {
            tenant: Line(
                self._policy, part_way.get(tenant, ()), self._queues.get(tenant, self._nobody)
            )
            for tenant in {**self._queues, **part_way}
        }


class FairLine:
    """The `Line` of each tenant, as turns go while tokens are taken."""

    def __init__(self, lines: dict[str, Line], turns: Turns) -> None:
        self._lines = lines
        self._turns = turns

    def __iter__(self) -> Iterator[Sequence]:
        while (line := self._next) is not None:
            yield line.pop()

    @property
    def first(self) -> Sequence | None:
        """The one that comes next."""
        line = self._next
        return line.first if line else None

    @property
    def oldest(self) -> list[Sequence]:
        """Those that came first, of the tenant whose turn it is."""
        line = self._next
        return line.oldest if line else []

    @property
    def num_left(self) -> int:
        """How many have not been handed out."""
        return sum(line.num_left for line in self._lines.values())

    def close(self) -> None:
        """Hand out no more waiting ones."""
        for line in self._lines.values():
            line.close()

    @property
    def _next(self) -> Line | None:
        left = {tenant: line for tenant, line in self._lines.items() if line.first is not None}
        return left[self._turns.first(left)] if left else None


def _tenant(seq: Sequence) -> str:
    return seq.tracked.request.tenant


def _round(taken: int) -> int:
    return taken // _QUANTUM
