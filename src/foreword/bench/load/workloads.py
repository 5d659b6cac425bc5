"""What people do with language models, as plans of requests."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from typing import ClassVar

from foreword.bench.load.corpus import Corpus, Passages
from foreword.bench.load.plan import Message, Passage, PlannedRequest, Workload
from foreword.config.option import option
from foreword.core.request import NOT_URGENT, Urgency
from foreword.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Draft:
    """A request before its place and time are known.

    Attributes:
        at_s: its time, in workloads that bring their own.
        urgency: see `PlannedRequest`.
    """

    kind: str
    messages: tuple[Message, ...]
    max_tokens: int
    at_s: float | None = None
    urgency: Urgency = NOT_URGENT


@dataclass(frozen=True)
class Recipe(ABC):
    """A kind of workload; its fields are its settings.

    What it draws from ``shape`` are kinds, lengths and order; what it draws from ``passages`` are
    texts. So plans with other texts are alike in all else.

    Raises:
        ConfigError: a setting that cannot work.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(n, int | float) and not 0 < n < math.inf for n in numbers):
                raise ConfigError(field.name, f"must be above 0, not {value}")

    @abstractmethod
    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """Give requests without end, or all there are."""

    def notes(self) -> tuple[str, ...]:
        """Give what a reader of the results should know; asked for after the drafts."""
        return ()


def plan(
    recipe: Recipe,
    corpus: Corpus,
    *,
    count: int,
    seed: int | str = 0,
    salt: str = "",
    request_rate: float | None = None,
    burstiness: float = 1.0,
) -> Workload:
    """Make every request of a run.

    The same arguments make the same requests. Another ``salt`` makes other texts of the same
    lengths at the same times, and what shares a prefix still does: so that one block of an
    experiment does not find the other's in the prefix cache.

    Args:
        count: requests; a trace may have fewer.
        request_rate: requests per second of an open loop; None: each as soon as there is room.
        burstiness: 1 is a Poisson process; below, gaps follow a gamma distribution of that shape,
            in which requests come in clusters; above, they are more even; infinity is a metronome.

    Raises:
        ConfigError: a rate for a workload that brings its own times, or a value that cannot work.
    """
    settings = {
        **asdict(recipe),
        "seed": seed,
        "salt": salt,
        "request_rate": request_rate,
        "burstiness": burstiness,
    }
    requests = draw_requests(
        recipe,
        corpus,
        count=count,
        seed=seed,
        salt=salt,
        request_rate=request_rate,
        burstiness=burstiness,
    )
    return Workload(recipe.name, tuple(requests), settings, recipe.notes())


def draw_requests(
    recipe: Recipe,
    corpus: Corpus,
    *,
    count: int,
    seed: int | str = 0,
    salt: str = "",
    request_rate: float | None = None,
    burstiness: float = 1.0,
) -> Iterator[PlannedRequest]:
    """Make the requests of `plan` one after the other, for plans that memory would not hold."""
    if count < 1:
        raise ConfigError("num_prompts", f"must be at least 1, not {count}")
    shape = random.Random(f"{seed}/{recipe.name}")
    passages = Passages(corpus, f"{seed}/{recipe.name}/{salt}")
    times = _arrivals(random.Random(f"{seed}/times"), request_rate, burstiness)
    for index, draft in enumerate(islice(recipe.drafts(shape, passages), count)):
        if draft.at_s is not None and request_rate is not None:
            raise ConfigError("request_rate", f"the workload {recipe.name} brings its own times")
        yield PlannedRequest(
            index=index,
            kind=draft.kind,
            messages=draft.messages,
            max_tokens=draft.max_tokens,
            intended_s=next(times) if draft.at_s is None else draft.at_s,
            urgency=draft.urgency,
        )


def _arrivals(draw: random.Random, rate: float | None, burstiness: float) -> Iterator[float | None]:
    if rate is not None and not 0 < rate < math.inf:
        raise ConfigError("request_rate", f"must be above 0, not {rate}")
    if not burstiness > 0:
        raise ConfigError("burstiness", f"must be above 0, not {burstiness}")
    now_s = 0.0
    while True:
        if rate is None:
            yield None
            continue
        yield now_s
        even = math.isinf(burstiness)
        now_s += 1 / rate if even else draw.gammavariate(burstiness, 1 / (rate * burstiness))


@dataclass(frozen=True)
class Fixed(Recipe):
    """Prompts of the same lengths, each as cold as the first."""

    name: ClassVar[str] = "fixed"
    prompt_tokens: tuple[int, ...] = option((512,), "Tokens of the prompts, taken in turn.")
    output_tokens: int = option(64, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        del shape
        while True:
            for tokens in self.prompt_tokens:
                yield _single(f"{tokens} tokens", passages, tokens, self.output_tokens)


@dataclass(frozen=True)
class Burst(Recipe):
    """Requests that come at the same moment, and then none for a while."""

    name: ClassVar[str] = "burst"
    size: int = option(8, "Requests of a burst.")
    period_s: float = option(2.0, "Seconds from one burst to the next.")
    prompt_tokens: int = option(128, "Tokens of each prompt.")
    output_tokens: int = option(32, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        del shape
        number = 0
        while True:
            for place in range(self.size):
                kind = "first of a burst" if place == 0 else "others of a burst"
                draft = _single(kind, passages, self.prompt_tokens, self.output_tokens)
                yield replace(draft, at_s=number * self.period_s)
            number += 1


@dataclass(frozen=True)
class Mixed(Recipe):
    """Short requests among very long ones."""

    name: ClassVar[str] = "mixed"
    short_tokens: int = option(64, "Tokens of a short prompt.")
    long_tokens: int = option(2048, "Tokens of a long prompt.")
    long_share: float = option(0.1, "Share of long prompts.")
    output_tokens: int = option(32, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        while True:
            is_long = shape.random() < self.long_share
            kind, tokens = ("long", self.long_tokens) if is_long else ("short", self.short_tokens)
            yield _single(kind, passages, tokens, self.output_tokens)


@dataclass(frozen=True)
class Urgent(Recipe):
    """Some who wait for the first word, among others who do not, with prompts of one length.

    Each request brings its own priority (-1 or 0) and ``ttft_slo_ms``.
    """

    name: ClassVar[str] = "urgent"
    urgent_share: float = option(0.2, "Share of urgent requests.")
    urgent_ttft_slo_ms: float = option(500.0, "What these ask for.")
    patient_ttft_slo_ms: float = option(10_000.0, "What the others ask for.")
    prompt_tokens: int = option(512, "Tokens of each prompt.")
    output_tokens: int = option(16, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        urgent = Urgency(priority=-1, ttft_slo_ms=self.urgent_ttft_slo_ms)
        patient = Urgency(ttft_slo_ms=self.patient_ttft_slo_ms)
        while True:
            is_urgent = shape.random() < self.urgent_share
            kind, urgency = ("urgent", urgent) if is_urgent else ("patient", patient)
            draft = _single(kind, passages, self.prompt_tokens, self.output_tokens)
            yield replace(draft, urgency=urgency)


@dataclass(frozen=True)
class Chat(Recipe):
    """Conversations that grow turn by turn, several at once, under one system prompt.

    The assistant's part of the history is planned, not what the server answered: only so are the
    requests the same for every server and can be sent when they are due. A server that keeps the
    keys and values of its answers gains nothing by that here.
    """

    name: ClassVar[str] = "chat"
    sessions: int = option(4, "Conversations at once; one that ends makes room for a new one.")
    turns: int = option(6, "Questions of a conversation.")
    system_tokens: int = option(128, "Tokens of the system prompt, the same everywhere.")
    user_tokens: int = option(48, "Tokens of a question, on average.")
    output_tokens: int = option(64, "Tokens to generate, and of each answer in the history.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        system = Message("system", passages.fresh(self.system_tokens))
        opening: tuple[Message, ...] = (system,)
        histories = [opening] * self.sessions
        # Sessions begin at different turns, so that not all of them start anew at once.
        left = [1 + session * self.turns // self.sessions for session in range(self.sessions)]
        while True:
            for session in range(self.sessions):
                tokens = _around(self.user_tokens, shape)
                asked = (*histories[session], Message("user", passages.fresh(tokens)))
                yield Draft(f"turn {len(asked) // 2}", asked, self.output_tokens)
                answer = Message("assistant", passages.fresh(self.output_tokens))
                histories[session] = (*asked, answer)
                left[session] -= 1
                if left[session] == 0:
                    histories[session], left[session] = opening, self.turns


@dataclass(frozen=True)
class Rag(Recipe):
    """Short questions about long documents, which many of them share."""

    name: ClassVar[str] = "rag"
    documents: int = option(4, "Different documents.")
    document_tokens: int = option(1024, "Tokens of a document.")
    question_tokens: int = option(24, "Tokens of a question, on average.")
    output_tokens: int = option(48, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        documents = [passages.fresh(self.document_tokens) for _ in range(self.documents)]
        seen: set[int] = set()
        while True:
            number = shape.randrange(self.documents)
            question = passages.fresh(_around(self.question_tokens, shape))
            kind = "known document" if number in seen else "new document"
            seen.add(number)
            messages = (Message("user", Passage.joined(documents[number], question)),)
            yield Draft(kind, messages, self.output_tokens)


@dataclass(frozen=True)
class Code(Recipe):
    """A long file in which somebody types: each request has all before the cursor, which moves."""

    name: ClassVar[str] = "code"
    file_tokens: int = option(1536, "Tokens before the cursor at first.")
    typed_tokens: int = option(24, "Tokens typed between two requests, on average.")
    requests: int = option(16, "Requests in one file, before another is opened.")
    output_tokens: int = option(16, "Tokens to generate.")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """See `Recipe.drafts`."""
        while True:
            before = passages.fresh(self.file_tokens)
            for number in range(self.requests):
                kind = "file opened" if number == 0 else "file known"
                yield Draft(kind, (Message("user", before),), self.output_tokens)
                typed = passages.fresh(_around(self.typed_tokens, shape))
                before = Passage.joined(before, typed)


def _single(kind: str, passages: Passages, tokens: int, output_tokens: int) -> Draft:
    return Draft(kind, (Message("user", passages.fresh(tokens)),), output_tokens)


def _around(mean: int, shape: random.Random) -> int:
    """Draw a length between half the mean and one and a half."""
    return max(1, round(mean * shape.uniform(0.5, 1.5)))


RECIPES: Mapping[str, type[Recipe]] = {
    recipe.name: recipe for recipe in (Fixed, Chat, Rag, Code, Mixed, Burst, Urgent)
}
