"""The C++ sampler against answers known in advance."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foreword._core import SamplerScratch, SamplingSpec, philox4x32, sample, score

Logits = NDArray[np.float32]
SIZES = [
    1,
    2,
    15,
    16,
    17,
    255,
    256,
    257,
    1023,
    1024,
    1025,
]  # around the sampler's runs of 16 and 256
NAN, INF = math.nan, math.inf


def row(*logits: float) -> Logits:
    return np.array(logits, np.float32)


def noise(size: int, scale: float = 3.0, seed: int = 0) -> Logits:
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def draw(
    logits: Logits,
    *,
    seed: int = 0,
    draws: Sequence[int] = (0,),
    position: int = 0,
    history: Sequence[int] = (),
    num_prompt_tokens: int = 0,
    banned: Sequence[int] = (),
    scratch: SamplerScratch | None = None,
    **spec: Any,
) -> list[int]:
    ids, _ = sample(
        logits,
        SamplingSpec(**spec),
        seed=seed,
        draws=draws,
        position=position,
        history=history,
        num_prompt_tokens=num_prompt_tokens,
        banned=banned,
        scratch=scratch or SamplerScratch(),
    )
    return ids


def greedy(logits: Logits, **more: Any) -> int:
    (token_id,) = draw(logits, temperature=0.0, **more)
    return token_id


class TestRandomNumbers:
    @pytest.mark.parametrize(
        ("counter", "key", "expected"),
        [  # the known answers that come with the authors' Random123
            (
                (0, 0, 0, 0),
                (0, 0),
                (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
            ),
            (
                (0xFFFFFFFF,) * 4,
                (0xFFFFFFFF,) * 2,
                (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
            ),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                (0xA4093822, 0x299F31D0),
                (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
            ),
        ],
    )
    def test_philox_known_answers(
        self, counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
    ) -> None:
        assert tuple(philox4x32(counter, key)) == expected

    def test_a_draw_depends_on_seed_draw_and_position_alone(self) -> None:
        logits = noise(1000)
        together = draw(logits, seed=7, draws=range(20), position=3)
        used = SamplerScratch()
        draw(noise(5000, seed=1), scratch=used, top_k=40, top_p=0.9, frequency_penalty=1.0)
        alone = [
            draw(logits, seed=7, draws=[i], position=3, scratch=used)[0]
            for i in reversed(range(20))
        ]
        assert alone[::-1] == together

    @pytest.mark.parametrize("vary", ["seed", "position"])
    @pytest.mark.parametrize("step", [1, 2**32])
    def test_every_bit_of_seed_and_position_counts(self, vary: str, step: int) -> None:
        logits = np.zeros(2**16, np.float32)
        ids = {draw(logits, **{vary: i * step})[0] for i in range(32)}
        assert len(ids) > 28

    @pytest.mark.parametrize("vary", ["seed", "position", "draws"])
    def test_draws_follow_the_distribution(self, vary: str) -> None:
        logits = noise(40, scale=1.0)
        n = 8000
        if vary == "draws":
            ids = draw(logits, draws=range(n))
        else:
            ids = [draw(logits, **{vary: i})[0] for i in range(n)]
        p = np.exp(logits.astype(np.float64))
        expected = n * p / p.sum()
        counts = np.bincount(ids, minlength=40)
        chi_square = ((counts - expected) ** 2 / expected).sum()
        # 39 degrees of freedom: mean 39, deviation 8.8; above 80 once in ten thousand
        assert 10 < chi_square < 80


class TestGreedy:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
    def test_finds_the_highest_wherever_it_is(self, size: int, where: float) -> None:
        logits = noise(size)
        best = round(where * (size - 1))
        logits[best] = 100.0
        assert greedy(logits) == best

    def test_lowest_id_wins_a_tie(self) -> None:
        logits = np.full(300, -5.0, np.float32)
        logits[[37, 38, 299]] = 2.0
        assert greedy(logits) == 37
        assert greedy(np.zeros(300, np.float32)) == 0

    def test_nan_never_wins(self) -> None:
        assert greedy(row(NAN, -3.0, NAN, -2.0, NAN)) == 3
        assert draw(row(NAN, -3.0, NAN), draws=range(50)) == [1] * 50

    def test_infinities(self) -> None:
        assert greedy(row(1.0, INF, INF)) == 1
        assert set(draw(row(1.0, INF, -INF, INF), draws=range(50))) == {1, 3}
        assert set(draw(row(-INF, 1.0, -INF, 1.0), draws=range(50), top_k=4)) == {1, 3}

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_nothing_to_draw_is_an_error(self, temperature: float) -> None:
        for logits in (row(NAN, NAN), row(-INF, -INF), np.zeros(0, np.float32)):
            with pytest.raises(ValueError, match="no token can be sampled"):
                draw(logits, temperature=temperature)
        with pytest.raises(ValueError, match="no token can be sampled"):
            draw(row(1.0, 2.0), temperature=temperature, banned=[0, 1])

    @pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-9, 1e-6, 1e-4])
    @pytest.mark.parametrize("spec", [{}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
    def test_tiny_temperatures_are_greedy(self, temperature: float, spec: dict[str, Any]) -> None:
        logits = noise(500, scale=20.0)
        assert (
            draw(logits, temperature=temperature, draws=range(50), **spec) == [greedy(logits)] * 50
        )

    @pytest.mark.parametrize("spec", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
    def test_the_tightest_truncation_is_greedy(self, spec: dict[str, Any]) -> None:
        logits = noise(500)
        assert draw(logits, draws=range(50), **spec) == [greedy(logits)] * 50


class TestEdits:
    def test_bias_is_added_and_duplicates_add_up(self) -> None:
        assert greedy(row(1.0, 0.0, 0.0), logit_bias=[(2, 1.5)]) == 2
        assert greedy(row(1.0, 0.0, 0.0), logit_bias=[(2, 0.6), (2, 0.6)]) == 2
        assert greedy(row(1.0, 0.0, 0.0), logit_bias=[(2, 0.6), (2, 0.3)]) == 0

    def test_banned_ids_are_never_drawn_whatever_their_bias(self) -> None:
        ids = draw(row(9.0, 0.0, 0.0), banned=[0, 0], logit_bias=[(0, 100.0)], draws=range(60))
        assert set(ids) == {1, 2}

    def test_repetition_penalty_counts_prompt_and_output_once(self) -> None:
        logits = row(3.0, 2.0, -1.0, -1.9)
        seen = {"history": [0, 0, 0], "repetition_penalty": 1.4}
        assert greedy(logits, num_prompt_tokens=3, **seen) == 0  # 3 / 1.4 = 2.14
        assert greedy(logits, num_prompt_tokens=0, repetition_penalty=1.6, history=[0, 0]) == 1
        negative = row(-1.0, -1.5)
        assert greedy(negative, history=[0], repetition_penalty=1.4) == 0  # -1 · 1.4
        assert greedy(negative, history=[0], repetition_penalty=1.6) == 1
        assert greedy(negative, history=[1], repetition_penalty=0.5) == 1

    def test_presence_and_frequency_look_at_the_output_only(self) -> None:
        logits = row(1.0, 0.0)
        for name in ("presence_penalty", "frequency_penalty"):
            assert greedy(logits, history=[0, 0, 0], num_prompt_tokens=3, **{name: 2.0}) == 0
            assert greedy(logits, history=[0], **{name: 1.1}) == 1
            assert greedy(logits, history=[1], **{name: -1.1}) == 1
        assert greedy(logits, history=[0] * 3, presence_penalty=0.9) == 0
        assert greedy(logits, history=[0] * 3, num_prompt_tokens=1, frequency_penalty=0.4) == 0
        assert greedy(logits, history=[0] * 3, num_prompt_tokens=0, frequency_penalty=0.4) == 1

    def test_penalties_see_the_biased_logit(self) -> None:
        assert greedy(row(-1.0, 1.0), logit_bias=[(0, 4.0)], history=[0]) == 0
        # 3 / 4 is less than 1, where (-1 · 4) + 4 would be 0 and (-1 / 4) + 4 would win
        assert greedy(row(-1.0, 1.0), logit_bias=[(0, 4.0)], history=[0], repetition_penalty=4) == 1

    @pytest.mark.parametrize("bad_id", [-1, 3, 2**31 - 1, -(2**31)])
    @pytest.mark.parametrize(
        "spec",
        [
            lambda i: {"banned": [0, i]},
            lambda i: {"logit_bias": [(0, 1.0), (i, 1.0)]},
            lambda i: {"history": [0, i], "presence_penalty": 1.0, "banned": [1]},
        ],
        ids=["banned", "logit_bias", "history"],
    )
    def test_ids_outside_the_vocabulary_are_refused(self, bad_id: int, spec: Any) -> None:
        logits = row(1.0, 2.0, 3.0)
        with pytest.raises(IndexError, match=f"{bad_id} is outside the vocabulary of 3"):
            draw(logits, **spec(bad_id))
        assert logits.tolist() == [1.0, 2.0, 3.0]

    def test_logits_are_as_before_afterwards(self) -> None:
        logits = noise(100)
        logits[[3, 50]] = NAN, INF
        before = logits.tobytes()
        edits: dict[str, Any] = {
            "logit_bias": [(1, 2.0), (1, 3.0), (3, 1.0)],
            "banned": [1, 2, 50],
            "history": [1, 1, 4, 4, 3],
            "num_prompt_tokens": 1,
            "repetition_penalty": 1.3,
            "frequency_penalty": 0.5,
        }
        draw(logits, **edits)
        assert logits.tobytes() == before
        with pytest.raises(ValueError):
            draw(logits, **{**edits, "banned": range(100)})
        assert logits.tobytes() == before

    def test_counts_of_one_call_do_not_leak_into_the_next(self) -> None:
        scratch = SamplerScratch()
        for size in (1000, 10, 2000):
            logits = np.zeros(size, np.float32)
            logits[1] = 0.5
            for history, expected in (([1], 0), ([0], 1), ([1, 1], 0)):
                assert (
                    greedy(logits, history=history, presence_penalty=1.0, scratch=scratch)
                    == expected
                )


class TestTruncation:
    @pytest.mark.parametrize("k", [1, 2, 50, 600, 1000, 1999, 2000, 2**31 - 1])
    @pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "tied"])
    def test_top_k_keeps_the_k_highest_lower_ids_first(self, k: int, order: str) -> None:
        logits = np.linspace(0, 1e-3, 2000, dtype=np.float32)
        if order == "descending":
            logits = logits[::-1].copy()
        elif order == "shuffled":
            np.random.default_rng(0).shuffle(logits)
        elif order == "tied":
            logits[:] = logits // 1e-4 * 1e-4
        kept = np.lexsort((np.arange(2000), -logits))[:k]
        ids = draw(logits, draws=range(4000), top_k=k)
        assert set(ids) <= set(kept.tolist())
        assert len(set(ids)) > 0.8 * len(kept)  # 4000 draws of n equals miss e^(-4000/n) of them

    def test_top_p_keeps_the_fewest_that_reach_it(self) -> None:
        logits = np.log(row(0.25, 0.5, 0.125, 0.125))
        for top_p, kept in [(0.4, {1}), (0.6, {0, 1}), (0.8, {0, 1, 2}), (0.9, {0, 1, 2, 3})]:
            assert set(draw(logits, draws=range(200), top_p=top_p)) == kept

    @pytest.mark.parametrize("kept", [1, 100, 512, 1023])
    def test_top_p_keeps_lower_ids_first_and_stops_where_it_is_reached(self, kept: int) -> None:
        logits = np.zeros(1024, np.float32)
        ids = draw(logits, draws=range(20_000), top_p=kept / 1024)
        assert max(ids) == kept - 1
        assert min(ids) == 0

    def test_each_stage_works_on_what_the_one_before_left(self) -> None:
        logits = np.log(row(0.5, 0.2, 0.15, 0.1, 0.05))
        # of the two that top_k leaves, the first has 0.71
        assert set(draw(logits, draws=range(200), top_k=2, top_p=0.7)) == {0}
        # of the three that min_p leaves, the first two have 0.82
        assert set(draw(logits, draws=range(200), min_p=0.25, top_p=0.8)) == {0, 1}
        # temperature comes before: at 0.5 the likeliest has 0.77
        assert set(draw(logits, draws=range(200), temperature=0.5, top_p=0.75)) == {0}

    def test_a_draw_is_the_same_by_every_route_that_keeps_all(self) -> None:
        logits = noise(3000, scale=1.0)
        plain = draw(logits, draws=range(300))
        assert draw(logits, draws=range(300), top_k=3000) == plain
        assert draw(logits, draws=range(300), min_p=1e-9) == plain
        assert draw(logits, draws=range(300), top_p=1 - 2**-24) == plain

    @pytest.mark.parametrize("spec", [{}, {"top_k": 2**20}, {"top_p": 0.9999}, {"min_p": 1e-9}])
    @pytest.mark.parametrize("size", SIZES)
    def test_zero_probability_tails_are_never_drawn(self, size: int, spec: dict[str, Any]) -> None:
        logits = np.full(size, -INF, np.float32)
        logits[: size // 2 + 1] = 0.0
        assert max(draw(logits, draws=range(2000), **spec)) <= size // 2


class TestLogprobs:
    @pytest.mark.parametrize("size", SIZES)
    def test_match_float64(self, size: int) -> None:
        logits = noise(size, scale=8.0)
        wide = logits.astype(np.float64)
        expected = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
        order = np.lexsort((np.arange(size), -wide))
        scratch = SamplerScratch()
        for token_id in {0, size // 2, size - 1}:
            token, logprob, rank, top = score(logits, token_id, 5, scratch)
            assert token == token_id
            assert logprob == pytest.approx(expected[token_id], abs=2e-6 * (1 - expected.min()))
            assert order[rank - 1] == token_id
            assert [i for i, _ in top] == order[:5].tolist()
            assert [p for _, p in top] == pytest.approx(expected[order[:5]], abs=1e-5)

    def test_hold_all_digits_of_float32(self) -> None:
        scratch = SamplerScratch()
        for other in np.linspace(-20, 0, 333, dtype=np.float32):
            expected = -math.log1p(math.exp(other))
            assert score(row(0, other), 0, 0, scratch)[1] == pytest.approx(expected, rel=4e-7)

    def test_are_the_models_own(self) -> None:
        logits = noise(100)
        history = [5, 6, 7]
        ids, logprobs = sample(
            logits,
            SamplingSpec(
                temperature=0.3,
                top_k=3,
                repetition_penalty=2.0,
                logit_bias=[(17, 50.0)],
                logprobs=4,
            ),
            seed=0,
            draws=[0, 1],
            position=0,
            history=history,
            banned=[int(logits.argmax())],
            scratch=SamplerScratch(),
        )
        assert ids == [17, 17]
        assert logprobs == [score(logits, 17, 4, SamplerScratch())] * 2
        assert logprobs[0][3][0][0] == logits.argmax()

    def test_none_are_made_unless_wanted(self) -> None:
        def logprobs(wanted: int) -> Any:
            spec = SamplingSpec(logprobs=wanted)
            return sample(row(1, 2), spec, seed=0, draws=[0], position=0, scratch=SamplerScratch())[
                1
            ]

        assert logprobs(-1) == []
        assert logprobs(0)[0][3] == ()
        assert len(logprobs(20)[0][3]) == 2

    @pytest.mark.parametrize(
        "logits", [row(NAN, NAN), row(-INF, -INF), row(0.0, -INF), row(0.0, NAN), row(INF, 0.0)]
    )
    def test_are_finite_whatever_the_logits(self, logits: Logits) -> None:
        token, logprob, rank, top = score(logits, 1, 2, SamplerScratch())
        assert (token, logprob) == (1, -9999.0)
        assert 1 <= rank <= 2
        assert all(math.isfinite(p) for _, p in top)

    def test_ties_rank_in_the_order_of_ids(self) -> None:
        logits = row(1.0, 2.0, 2.0, 2.0)
        ranks = [score(logits, i, 0, SamplerScratch())[2] for i in range(4)]
        assert ranks == [4, 1, 2, 3]

    @pytest.mark.parametrize("bad_id", [-1, 2])
    def test_ids_outside_the_vocabulary_are_refused(self, bad_id: int) -> None:
        with pytest.raises(IndexError, match="outside the vocabulary of 2"):
            score(row(1.0, 2.0), bad_id, 0, SamplerScratch())


@pytest.mark.parametrize(
    ("spec", "limit_ms"),
    [
        ({"temperature": 0.0}, 1),
        ({"top_k": 50, "top_p": 0.95}, 1),
        ({}, 4),
        ({"top_p": 0.9}, 25),
    ],
)
def test_speed_on_a_vocabulary_of_262144(spec: dict[str, Any], limit_ms: float) -> None:
    """Bounds of several times what was measured: they catch a full sort, not a slow machine."""
    logits = noise(2**18)
    scratch = SamplerScratch()
    sampling = SamplingSpec(**spec)
    seconds = []
    for position in range(20):
        start = time.thread_time()
        sample(logits, sampling, seed=0, draws=[0], position=position, scratch=scratch)
        seconds.append(time.thread_time() - start)
    assert min(seconds) * 1e3 < limit_ms
