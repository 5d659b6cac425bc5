"""Random load on engines that share a folder of blocks, and a judge of every answer."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path

from foreword.core.params import SamplingParams
from foreword.engine.engine import Engine
from foreword.errors import InvalidRequestError


@dataclass(frozen=True)
class Case:
    """A prompt, who may share its blocks, and what must come back for each completion."""

    prompt: list[int]
    salt: str
    answers: list[list[int]]


@dataclass
class _Asked:
    case: Case
    token_ids: list[list[int]]


class Load:
    """Requests at random on one engine after another, each on the folder of the one before.

    Everything that is sent is checked against the answer it must have; whenever nothing runs, every
    block of the pool is free or cached.

    Args:
        start: makes an engine.
        draw: makes a case; is given one that was answered, if there is any, to go on with.
        concurrency: requests at a time.
    """

    def __init__(
        self,
        start: Callable[[], Engine],
        draw: Callable[[random.Random, Case | None], Case],
        *,
        concurrency: int,
        rng: random.Random,
    ) -> None:
        self._start, self._draw = start, draw
        self._concurrency = concurrency
        self._rng = rng
        self._numbers = count()
        self._running: dict[str, _Asked] = {}
        self._answered: list[Case] = []
        self.engine = start()
        self.num_answered = self.num_cancelled = self.num_restarts = 0
        self.cached_tokens = self.loaded_tokens = 0

    def step(self) -> None:
        """Fill up with requests, let some leave, and have one step computed."""
        while len(self._running) < self._concurrency:
            self._add()
        if self._rng.random() < 0.2:
            self._cancel(self._rng.choice(list(self._running)))
        if self._rng.random() < 0.05:
            self._operate()
        self._compute()

    def drain(self) -> None:
        """Let everything end, and look at the pool."""
        while self._running:
            self._compute()
        usage = self.engine.stats().blocks
        pool = self.engine.scheduler._cache.pool
        assert all(pool.references(block) == 0 for block in range(usage.total))
        assert (usage.referenced, usage.free + usage.cached) == (0, usage.total)

    def restart(self) -> None:
        """End the engine and go on with a new one."""
        self.drain()
        self.close()
        self.engine = self._start()
        self.num_restarts += 1

    def close(self) -> None:
        """End the engine."""
        totals = self.engine.stats().totals
        self.cached_tokens += totals.cached_prompt_tokens
        self.loaded_tokens += totals.loaded_prompt_tokens.total()
        self.engine.close()

    def _add(self) -> None:
        before = self._rng.choice(self._answered) if self._answered else None
        case = self._draw(self._rng, before)
        params = SamplingParams(
            n=len(case.answers), temperature=0.0, max_tokens=len(case.answers[0]), ignore_eos=True
        )
        request = self.engine.make_request(
            case.prompt, params, request_id=f"r{next(self._numbers)}", cache_salt=case.salt
        )
        self.engine.add(self.engine.prepare(request))
        self._running[request.request_id] = _Asked(case, [[] for _ in case.answers])

    def _cancel(self, request_id: str) -> None:
        self.engine.abort(request_id)
        del self._running[request_id]
        self.num_cancelled += 1

    def _operate(self) -> None:
        """Do what operators do: pin, unpin, and seldom clear."""
        control = self.engine.cache
        case = self._rng.choice(list(self._running.values())).case
        until_s = self.engine.clock() + self._rng.random()
        try:
            control.pin(case.prompt, case.salt, until_s)
        except InvalidRequestError:  # half of the pool is pinned
            control.unpin(self._rng.choice(list(control.state().pins)))
        if self._rng.random() < 0.05:
            control.clear()

    def _compute(self) -> None:
        for delta in self.engine.step():
            assert delta.error is None, delta.error
            asked = self._running[delta.request_id]
            for completion in delta.completions:
                asked.token_ids[completion.index] += completion.token_ids
            if delta.finished:
                del self._running[delta.request_id]
                assert asked.token_ids == asked.case.answers, "not what it gets when it is alone"
                self.num_answered += 1
                self._answered = [*self._answered[-50:], asked.case]


class SecretPrompts:
    """Cases for a backend that reads tokens out of its blocks: each prompt ends with a secret.

    An answer begins with the secret, as the blocks have it, and goes on with a hash of all that
    they have. So one wrong token in any block is seen.
    """

    SECRET = 8

    def __init__(self, rng: random.Random) -> None:
        self._stems = [rng.choices(range(97, 123), k=rng.randint(1, 400)) for _ in range(6)]

    def answer(self, history: list[int] | tuple[int, ...], prompt: int, draw: int) -> int:
        """The token after ``history``, of which the first ``prompt`` were asked."""
        position = len(history) - prompt
        if position < self.SECRET:
            return history[prompt - self.SECRET + position]
        return 97 + hash((tuple(history), draw)) % 26

    def draw(self, rng: random.Random, before: Case | None) -> Case:
        """A part of a stem or a conversation that goes on, and a new secret."""
        salt = rng.choice(["", "", "alice", "bob"])
        stem = rng.choice(self._stems)
        stem = stem[: rng.randint(0, len(stem))]
        if before is not None and rng.random() < 0.3 and len(before.prompt) < 400:
            stem, salt = before.prompt + before.answers[0], before.salt
        prompt = stem + rng.choices(range(97, 123), k=self.SECRET)
        length = rng.randint(1, 40)
        draws = range(rng.choice((1, 1, 2)))
        return Case(prompt, salt, [self._alone(prompt, length, draw) for draw in draws])

    def _alone(self, prompt: list[int], length: int, draw: int) -> list[int]:
        history = list(prompt)
        for _ in range(length):
            history.append(self.answer(history, len(prompt), draw))
        return history[len(prompt) :]


def fixed(cases: list[Case]) -> Callable[[random.Random, Case | None], Case]:
    """Draw one of ``cases``, with a salt now and then."""
    return lambda rng, _: replace(rng.choice(cases), salt=rng.choice(["", "", "alice"]))


def damage(folder: Path, rng: random.Random) -> None:
    """Do to one file what disks do: cut it, turn a bit, lose it."""
    paths = sorted(folder.rglob("*.kv"))[:1000]
    if not paths:
        return
    path = rng.choice(paths)
    with contextlib.suppress(FileNotFoundError):  # evicted by an engine meanwhile
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        rng.choice(
            (path.unlink, lambda: path.write_bytes(data), lambda: path.write_bytes(data[:50]))
        )()


def until(seconds: float) -> Iterator[int]:
    """Count while the time lasts."""
    end_s = time.monotonic() + seconds
    return takewhile(lambda _: time.monotonic() < end_s, count())


def resident_bytes(pid: int | str = "self") -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
