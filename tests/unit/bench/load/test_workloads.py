from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from foreword.bench.load.corpus import Corpus
from foreword.bench.load.plan import Message, PlannedRequest, Workload
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import (
    RECIPES,
    Burst,
    Chat,
    Code,
    Fixed,
    Mixed,
    Rag,
    Recipe,
    Urgent,
    draw_requests,
    plan,
)
from foreword.core.request import Urgency
from foreword.errors import ConfigError

CORPUS = Corpus.of_words(1.0)


def made(recipe: Recipe, count: int = 40, **options: Any) -> Workload:
    return plan(recipe, CORPUS, count=count, **options)


def text(request: PlannedRequest) -> str:
    return request.plain_prompt().text


def shared(first: PlannedRequest, second: PlannedRequest) -> int:
    """Words that both begin with."""
    pairs = zip(text(first).split(), text(second).split(), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_seed_makes_the_same_requests(name: str) -> None:
    recipe = RECIPES[name]()
    assert made(recipe, seed=1) == made(recipe, seed=1)
    assert made(recipe, seed=1).requests != made(recipe, seed=2).requests


@pytest.mark.parametrize("name", RECIPES)
def test_another_salt_changes_only_the_words(name: str) -> None:
    recipe = RECIPES[name]()
    options = {} if name == "burst" else {"request_rate": 5.0}
    first, second = made(recipe, salt="a", **options), made(recipe, salt="b", **options)
    for one, other in zip(first.requests, second.requests, strict=True):
        assert (one.kind, one.prompt_tokens, one.max_tokens, one.intended_s) == (
            other.kind,
            other.prompt_tokens,
            other.max_tokens,
            other.intended_s,
        )
        assert shared(one, other) < 8
    pairs = (itertools.pairwise(workload.requests) for workload in (first, second))
    before, after = ([shared(*pair) for pair in each] for each in pairs)
    assert after == pytest.approx(before, abs=4)  # who shares how much with whom stays


def test_fixed_prompts_have_their_lengths_and_share_nothing() -> None:
    requests = made(Fixed(prompt_tokens=(16, 64), output_tokens=3), 20).requests
    assert [request.prompt_tokens for request in requests] == [16, 64] * 10
    assert [request.index for request in requests] == list(range(20))
    assert {request.max_tokens for request in requests} == {3}
    assert all(len(text(request).split()) == request.prompt_tokens for request in requests)
    beginnings = [tuple(text(request).split()[:8]) for request in requests]
    assert len(set(beginnings)) == len(beginnings)


def test_conversations_grow_by_what_was_said() -> None:
    requests = made(Chat(sessions=2, turns=3), 24).requests
    systems = {request.messages[0] for request in requests}
    assert len(systems) == 1
    known: set[Sequence[Message]] = {(next(iter(systems)),)}
    for request in requests:
        *history, question = request.messages
        roles = [message.role for message in request.messages]
        assert roles == [
            "system",
            *itertools.islice(itertools.cycle(["user", "assistant"]), len(roles) - 1),
        ]
        assert question.role == "user"
        before = tuple(history[:-1]) if len(history) > 1 else tuple(history)
        assert before in known  # all but the last answer was asked before
        known.add(request.messages)
    turns = [int(request.kind.removeprefix("turn ")) for request in requests]
    assert max(turns) == 3
    assert [turns[0], *turns[2:6:2]] == [1, 1, 2]  # this session had one turn left at first


def test_questions_share_documents() -> None:
    requests = made(Rag(documents=3, document_tokens=200), 30).requests
    documents = {" ".join(text(request).split()[:200]) for request in requests}
    assert len(documents) == 3
    assert sum(request.kind == "new document" for request in requests) == 3
    assert len({text(request) for request in requests}) == 30


def test_a_file_grows_as_somebody_types() -> None:
    requests = made(Code(file_tokens=100, requests=4), 8).requests
    for file in (requests[:4], requests[4:]):
        assert [request.kind for request in file] == ["file opened", *["file known"] * 3]
        for before, after in itertools.pairwise(file):
            assert text(after).startswith(text(before))
            assert len(text(after)) > len(text(before))
    assert not text(requests[4]).startswith(text(requests[0]))


def test_few_requests_of_a_mix_are_long() -> None:
    requests = made(Mixed(long_share=0.25), 400).requests
    long = [request for request in requests if request.kind == "long"]
    assert {request.prompt_tokens for request in long} == {2048}
    assert 70 < len(long) < 130


def test_who_is_in_a_hurry_says_so() -> None:
    requests = made(Urgent(urgent_share=0.25, urgent_ttft_slo_ms=200), 400).requests
    urgent = [request for request in requests if request.kind == "urgent"]
    assert {request.urgency for request in urgent} == {Urgency(priority=-1, ttft_slo_ms=200)}
    assert 60 < len(urgent) < 140
    assert {request.prompt_tokens for request in requests} == {512}
    body = Target(url="http://127.0.0.1:1").body(urgent[0])
    assert (body["priority"], body["ttft_slo_ms"]) == (-1, 200)
    (plain,) = made(Fixed(), 1).requests
    assert not {"priority", "ttft_slo_ms"} & Target(url="http://127.0.0.1:1").body(plain).keys()


def test_bursts_come_together() -> None:
    requests = made(Burst(size=3, period_s=2.0), 7).requests
    assert [request.intended_s for request in requests] == [0, 0, 0, 2, 2, 2, 4]
    with pytest.raises(ConfigError, match="brings its own times"):
        made(Burst(), request_rate=1.0)


def gaps(**options: Any) -> list[float]:
    requests = made(Fixed(prompt_tokens=(1,)), 2000, request_rate=4.0, **options).requests
    times = [request.intended_s for request in requests]
    assert times[0] == 0
    return [later - earlier for earlier, later in itertools.pairwise(times)]  # type: ignore[operator]


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_arrivals_have_the_rate_and_the_variation(burstiness: float, variation: float) -> None:
    between = gaps(burstiness=burstiness)
    mean = statistics.mean(between)
    assert mean == pytest.approx(0.25, rel=0.15)
    assert statistics.stdev(between) / mean == pytest.approx(variation, rel=0.2)


def test_a_metronome_is_even() -> None:
    assert gaps(burstiness=float("inf")) == pytest.approx([0.25] * 1999)


def test_a_closed_loop_has_no_times() -> None:
    workload = made(Fixed(), 3)
    assert not workload.open_loop
    assert [request.intended_s for request in workload.requests] == [None] * 3


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: Fixed(prompt_tokens=(8, 0)), "prompt_tokens"),
        (lambda: Chat(turns=-1), "turns"),
        (lambda: Burst(period_s=float("nan")), "period_s"),
        (lambda: made(Fixed(), request_rate=0.0), "request_rate"),
        (lambda: made(Fixed(), request_rate=float("inf")), "request_rate"),
        (lambda: made(Fixed(), burstiness=0.0), "burstiness"),
        (lambda: made(Fixed(), 0), "num_prompts"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.option == option


def test_token_ids_and_text_are_the_same_passage() -> None:
    units = [f" w{number}" for number in range(50)]
    corpus = Corpus(units, token_ids=range(100, 150), counted_by="a test")
    (request,) = plan(Rag(document_tokens=20), corpus, count=1).requests
    prompt = request.plain_prompt()
    assert prompt.token_ids is not None
    assert len(prompt.token_ids) == prompt.tokens == request.prompt_tokens
    assert prompt.text.split() == [f"w{token_id - 100}" for token_id in prompt.token_ids]


def test_a_corpus_has_so_many_beginnings() -> None:
    corpus = Corpus([" a", " b"], counted_by="a test")
    with pytest.raises(ConfigError, match="2 beginnings"):
        plan(Fixed(), corpus, count=3)


def test_requests_drawn_one_by_one_are_those_of_the_plan() -> None:
    options: dict[str, Any] = {"count": 30, "seed": 3, "request_rate": 2.0}
    assert (
        tuple(draw_requests(Chat(), CORPUS, **options)) == plan(Chat(), CORPUS, **options).requests
    )


def test_a_passage_goes_on_at_the_beginning_of_the_corpus() -> None:
    corpus = Corpus([" a", " b", " c"], token_ids=[1, 2, 3], counted_by="hand")
    assert corpus.passage(2, 8).token_ids == (3, 1, 2, 3, 1, 2, 3, 1)
    assert corpus.passage(2, 3).text == " c a b"
    assert corpus.passage(0, 3).token_ids == (1, 2, 3)
