from __future__ import annotations

import pytest

from foreword.backends.null import NullBackend
from foreword.core.params import SamplingParams
from foreword.core.step import SequenceStep, StepPlan
from foreword.errors import BackendError

GREEDY = SamplingParams(temperature=0)
RANDOM = SamplingParams(temperature=1)


def make_backend(num_blocks: int = 8, **options: object) -> NullBackend:
    backend = NullBackend(**options)  # type: ignore[arg-type]
    backend.allocate(num_blocks)
    return backend


def run(
    backend: NullBackend, *steps: SequenceStep, copies: tuple[tuple[int, int], ...] = ()
) -> list[int]:
    result = backend.execute(StepPlan(steps, copies))
    return [token for sequence in result.sequences for token in sequence.token_ids]


def whole(
    table: list[int], tokens: list[int], params: SamplingParams = GREEDY, **more: object
) -> SequenceStep:
    return SequenceStep(1, tokens, 0, table, draws=(0,), params=params, **more)  # type: ignore[arg-type]


TOKENS = [position % 11 for position in range(40)]


def test_tokens_depend_on_the_history_alone() -> None:
    (expected,) = run(make_backend(), whole([0, 1, 2], TOKENS))
    backend = make_backend()
    for start, stop in ((0, 7), (7, 16), (16, 39)):
        run(backend, SequenceStep(1, TOKENS[start:stop], start, [5, 3, 7]))
    last = SequenceStep(1, TOKENS[39:], 39, [5, 3, 7], draws=(0,), params=GREEDY)
    other = whole([0], [1, 2, 3])
    assert run(backend, other, last)[1] == expected


def test_a_wrong_table_changes_the_outcome() -> None:
    right = run(make_backend(), whole([0, 1, 2], TOKENS))
    backend = make_backend()
    run(backend, whole([0, 1, 2], TOKENS))
    last = SequenceStep(1, TOKENS[39:], 39, [1, 0, 2], draws=(0,), params=GREEDY)
    assert run(backend, last) != right


def test_copies_come_before_everything_else() -> None:
    backend = make_backend()
    run(backend, whole([0], [1, 2, 3]))
    fork = SequenceStep(2, [9], 3, [4], draws=(0,), params=GREEDY)
    in_place = SequenceStep(1, [8], 3, [0], draws=(0,), params=GREEDY)
    expected = run(make_backend(), whole([0], [1, 2, 3, 8]), whole([1], [1, 2, 3, 9]))
    assert run(backend, in_place, fork, copies=((0, 4),)) == expected


def test_seeds_and_draws_matter_unless_greedy() -> None:
    def tokens(params: SamplingParams) -> set[int]:
        return {
            run(make_backend(), SequenceStep(1, TOKENS, 0, [0, 1, 2], (draw,), params, seed))[0]
            for seed in (1, 2, 3)
            for draw in (0, 1, 2)
        }

    assert len(tokens(GREEDY)) == 1
    assert len(tokens(RANDOM)) > 5


def test_banned_tokens_are_not_sampled() -> None:
    backend = make_backend(vocab_size=4)
    step = whole([0], [1, 2], banned_token_ids=(0, 1, 3))
    assert run(backend, step) == [2]


def test_tokens_can_be_scripted() -> None:
    backend = make_backend(next_token=lambda history, step, draw: sum(history) + draw)
    assert run(backend, whole([0], [1, 2, 3])) == [6]


def test_logprobs_are_given_where_they_are_asked_for() -> None:
    params = SamplingParams(temperature=0, logprobs=3, prompt_logprobs=2)
    backend = make_backend()
    step = whole([0], [5, 6, 7], params, score_token_ids=[6, 7])
    (result,) = backend.execute(StepPlan((step,))).sequences
    assert [score.token_id for score in result.prompt_logprobs] == [6, 7]
    assert [len(score.top) for score in result.prompt_logprobs] == [2, 2]
    assert [score.token_id for score in result.logprobs] == list(result.token_ids)
    assert len(result.logprobs[0].top) == 3
    for score in (*result.logprobs, *result.prompt_logprobs):
        position = score.rank - 1
        if position < len(score.top):
            assert score.top[position] == (score.token_id, score.logprob)


def test_blocks_can_be_moved() -> None:
    source, target = make_backend(), make_backend()
    run(source, whole([0, 1, 2], TOKENS))
    for block in range(3):
        data = source.read_block(block)
        assert len(data) == source.block_bytes
        target.write_block(block + 4, data)
    last = SequenceStep(1, TOKENS[39:], 39, [4, 5, 6], draws=(0,), params=GREEDY)
    assert run(target, last) == run(make_backend(), whole([0, 1, 2], TOKENS))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (SequenceStep(1, [1], 5, [0]), "position 0 was never written"),
        (SequenceStep(1, [1], 16, [0]), "too short"),
        (SequenceStep(1, [256], 0, [0]), "outside the vocabulary"),
        (SequenceStep(1, [-1], 0, [0]), "outside the vocabulary"),
    ],
)
def test_bad_plans_are_found(step: SequenceStep, words: str) -> None:
    with pytest.raises(BackendError, match=words):
        run(make_backend(), step)


def test_after_a_fault_the_written_slots_are_undefined_and_no_others() -> None:
    faults = iter([False, True, False, False])

    def on_step(plan: StepPlan) -> None:
        if next(faults):
            raise BackendError("injected")

    backend = make_backend(on_step=on_step)
    run(backend, whole([0], TOKENS[:16]))
    with pytest.raises(BackendError, match="injected"):
        run(backend, SequenceStep(1, TOKENS[16:20], 16, [0, 1]))
    with pytest.raises(BackendError, match="position 16 was never"):
        run(backend, SequenceStep(1, TOKENS[20:21], 20, [0, 1]))
    assert run(backend, SequenceStep(1, [7], 15, [0], (0,), GREEDY)) == run(
        make_backend(), whole([0], [*TOKENS[:15], 7])
    )


def test_without_contents_nothing_is_checked_and_the_history_is_empty() -> None:
    seen = []

    def next_token(history: object, step: SequenceStep, draw: int) -> int:
        seen.append(history)
        return 7 + draw

    backend = make_backend(next_token=next_token, keeps_contents=False)
    step = SequenceStep(1, [999_999], 500, [], draws=(0, 1), params=GREEDY)
    assert run(backend, step) == [7, 8]
    assert seen == [(), ()]
