"""Blocks on real sockets, against servers whose delays are known."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import numpy as np
import pytest
from support.raw_server import DONE, HEAD, chunk, raw_server

from foreword.bench.ab.blocks import Side, draw_order
from foreword.bench.ab.run import AbError, AbRunner, Lane, Measured
from foreword.bench.ab.settings import AbSettings
from foreword.bench.load.mock import Behaviour, MockRequest, MockServer, Script
from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.target import Target
from foreword.bench.served import ServedProcessError

SETTINGS = AbSettings(pairs=8, aa_pairs=8, requests=2, warmup=1, cooldown_s=0.0)


def plan(number: int, salt: str) -> Sequence[PlannedRequest]:
    count = SETTINGS.warmup + SETTINGS.requests
    texts = [f"{salt}/{number}/{index}" for index in range(count)]
    return [
        PlannedRequest(
            index=index,
            kind="test",
            messages=(Message("user", Passage(text, 3)),),
            max_tokens=3,
        )
        for index, text in enumerate(texts)
    ]


class Sides:
    """Two mock servers; ``log`` has the side and the prompt of every request."""

    def __init__(self, a_s: float = 0.001, b_s: float = 0.002) -> None:
        self.log: list[tuple[str, str]] = []
        self._delays = {"a": a_s, "b": b_s}

    def behaviour(self, side: Side) -> Behaviour:
        def behave(request: MockRequest) -> Script:
            self.log.append((side, request.body["messages"][0]["content"]))
            return Script(self._delays[side], (0.0005,) * 2)

        return behave

    def run(
        self,
        settings: AbSettings = SETTINGS,
        *,
        one_server: bool = False,
        restart: Callable[[Side], None] | None = None,
    ) -> Measured:
        async def run() -> Measured:
            async with AsyncExitStack() as stack:
                lanes: dict[Side, Lane] = {}
                for side in ("a", "b"):
                    server = await stack.enter_async_context(MockServer(self.behaviour(side)))
                    again = None if restart is None else partial(restart, side)
                    lanes[side] = Lane(Target(url=server.url), lambda: 0.5, again)
                if one_server:
                    lanes["b"] = lanes["a"]
                return await AbRunner(lanes, plan, settings, is_good=lambda r: r.ok).run()

        return asyncio.run(run())


def test_every_pair_sends_the_same_to_both_sides_in_the_order_that_was_drawn() -> None:
    sides = Sides()
    measured = sides.run()
    assert measured.ended is None
    assert (len(measured.aa_pairs), len(measured.pairs)) == (8, 8)

    blocks = [
        (side, [text for _, text in requests])
        for side, requests in itertools.groupby(sides.log[2 * 3 + 8 * 2 * 3 :], lambda r: r[0])
    ]
    rng = np.random.default_rng([SETTINGS.seed, 0])
    assert [pair.first for pair in measured.aa_pairs] == draw_order(8, rng)
    assert [pair.first for pair in measured.pairs] == draw_order(8, rng)
    sent = {"a": [], "b": []}  # type: ignore[var-annotated]
    for side, texts in blocks:
        sent[side] += texts
    assert sent["a"] == sent["b"]
    assert len(set(sent["a"])) == 8 * 3, "no prompt twice"


def test_side_a_beside_itself_never_repeats_a_prompt_nor_asks_b() -> None:
    sides = Sides()
    sides.run()
    aa = sides.log[2 * 3 : 2 * 3 + 8 * 2 * 3]
    assert {side for side, _ in aa} == {"a"}
    assert len({text for _, text in aa}) == len(aa), "a prefix cache finds nothing"


def test_one_server_for_both_sides_never_sees_a_prompt_twice() -> None:
    sides = Sides()
    measured = sides.run(one_server=True)
    texts = [text for _, text in sides.log]
    assert len(set(texts)) == len(texts)
    assert measured.idle_cpu == {"a": [], "b": []}, "it is never idle"


def test_blocks_have_what_came_after_the_warm_up() -> None:
    measured = Sides(a_s=0.003, b_s=0.03).run()
    for pair in measured.pairs:
        assert pair.a.ttft_s.shape == (2,)
        assert (pair.a.num_good, pair.b.num_good) == (2, 2)
        assert (pair.b.ttft_s > 0.03).all()
        assert pair.b.duration_s > 2 * 0.03
        assert not np.isnan(pair.b.tpot_s).any()
    assert {record.index for record in measured.records["a"]} == {1, 2}
    assert len(measured.records["b"]) == 16
    assert set(measured.idle_cpu["a"]) == {0.0}
    assert len(measured.idle_cpu["b"]) > len(measured.idle_cpu["a"]), "A/A leaves b idle too"


def test_a_side_may_be_started_anew_before_each_of_its_blocks() -> None:
    sides = Sides()
    sides.run(restart=lambda side: sides.log.append((side, "restart")))
    blocks = 2 * (1 + 8 + 8)
    assert [text == "restart" for _, text in sides.log] == [True, False, False, False] * blocks
    assert all(side == sides.log[at - at % 4][0] for at, (side, _) in enumerate(sides.log))


def test_a_side_that_does_not_come_up_again_ends_the_run() -> None:
    def restart(side: Side) -> None:
        if len(sides.log) == 3 * 2 * (1 + 8 + 1):
            raise ServedProcessError(f"side {side} ended")

    sides = Sides()
    measured = sides.run(restart=restart)
    assert measured.ended is not None
    assert measured.ended.endswith("ended")
    assert (len(measured.aa_pairs), len(measured.pairs)) == (8, 1)


def test_a_side_that_never_answers_is_an_error() -> None:
    async def run() -> Measured:
        async with MockServer(Sides().behaviour("a")) as server:
            gone = Lane(Target(url="http://127.0.0.1:9"))
            return await AbRunner(
                {"a": Lane(Target(url=server.url)), "b": gone}, plan, SETTINGS
            ).run()

    with pytest.raises(AbError, match="side b failed: refused"):
        asyncio.run(run())


def test_a_side_that_dies_ends_the_run_and_complete_pairs_are_kept() -> None:
    alive = [[HEAD + chunk("x") + chunk("y"), DONE]] * (3 * (1 + 16 + 2))
    broken = [b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]

    async def run(url: str) -> Measured:
        async with MockServer(Sides().behaviour("b")) as server:
            lanes: dict[Side, Lane] = {
                "a": Lane(Target(url=url)),
                "b": Lane(Target(url=server.url)),
            }
            return await AbRunner(lanes, plan, SETTINGS).run()

    with raw_server(*alive, broken) as url:
        measured = asyncio.run(run(url))
    assert measured.ended is not None
    assert "side a failed: http status: 500" in measured.ended
    assert (len(measured.aa_pairs), len(measured.pairs)) == (8, 2)
    assert len(measured.records["b"]) == 4, "of complete pairs only"


@pytest.mark.parametrize(
    ("block", "complete"), [(1, 0), (2 * (1 + 8 + 3) + 1, 3)], ids=["warm-up", "fourth pair"]
)
def test_stopping_keeps_complete_pairs(block: int, complete: int) -> None:
    async def run() -> Measured:
        stop = asyncio.Event()
        blocks = itertools.count(1)

        def on_block() -> None:
            if next(blocks) == block:
                stop.set()

        async with MockServer(Sides().behaviour("a")) as a, MockServer(Sides().behaviour("b")) as b:
            lanes: dict[Side, Lane] = {"a": Lane(Target(url=a.url)), "b": Lane(Target(url=b.url))}
            runner = AbRunner(lanes, plan, SETTINGS, on_block=on_block, stop=stop)
            return await runner.run()

    measured = asyncio.run(run())
    assert measured.ended == "interrupted"
    assert len(measured.pairs) == complete


def test_the_bar_knows_how_many_blocks_there_are() -> None:
    assert AbRunner.num_blocks(SETTINGS) == 2 + 16 + 16
