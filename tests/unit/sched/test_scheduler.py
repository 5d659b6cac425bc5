from __future__ import annotations

import pytest
from support.scheduling import World, alone, check_outputs, make_request, prompt

from foreword.core.request import FinishReason
from foreword.core.step import SequenceResult, StepResult
from foreword.errors import BackendError, ContextLengthError, InvalidRequestError
from foreword.sched.policy import FirstComeFirstServed

# --- what goes into a step


def test_a_prompt_is_computed_in_chunks_and_sampled_once() -> None:
    world = World(budget=16)
    world.add(make_request("a", prompt(40), max_tokens=2, ignore_eos=True))
    world.run()
    steps = [plan.sequences[0] for plan in world.plans]
    assert [len(step.token_ids) for step in steps] == [16, 16, 8, 1]
    assert [step.start for step in steps] == [0, 16, 32, 40]
    assert [tuple(step.draws) for step in steps] == [(), (), (0,), (0,)]


def test_streams_decode_while_a_long_prompt_is_computed() -> None:
    world = World(budget=8, max_seqs=4, num_blocks=64)
    for name in "ab":
        world.add(make_request(name, prompt(4), max_tokens=100, ignore_eos=True))
    world.step()
    world.add(make_request("long", prompt(200), max_tokens=1))
    for _ in range(30):
        world.step()
    assert all(share["a"] == share["b"] == 1 for share in world.shares[1:])
    assert all(share["long"] == 6 for share in world.shares[1:])


def test_later_prompts_use_what_the_first_leaves() -> None:
    world = World(budget=16)
    world.add(make_request("a", prompt(20), max_tokens=1))
    world.add(make_request("b", prompt(10, first=3), max_tokens=1))
    world.add(make_request("c", prompt(10, first=4), max_tokens=1))
    world.run()
    assert world.shares == [{"a": 16}, {"a": 4, "b": 10, "c": 2}, {"c": 8}]


def test_all_slots_fill_with_part_way_prompts() -> None:
    world = World(budget=9, max_seqs=4, num_blocks=64)
    for number in range(4):
        world.add(make_request(f"r{number}", prompt(33, number), max_tokens=50, ignore_eos=True))
    for _ in range(20):
        world.step()
    assert world.scheduler.num_running == 4


def test_no_more_run_than_can_have_a_token_in_one_step() -> None:
    world = World(budget=3, max_seqs=10, num_blocks=64)
    for number in range(6):
        world.add(make_request(f"r{number}", prompt(5, number), max_tokens=9, ignore_eos=True))
    world.run()
    assert max(len(share) for share in world.shares) == 3
    check_outputs(world)


def test_a_long_queue_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = []
    monkeypatch.setattr(
        FirstComeFirstServed, "key", lambda policy, seq: (ranked.append(seq), ())[1]
    )
    world = World(max_seqs=2)
    for number in range(200):
        world.add(make_request(f"r{number}", prompt(4), max_tokens=50, ignore_eos=True))
    world.step()
    ranked.clear()
    for _ in range(20):
        world.step()
    assert not ranked  # only when they came


def test_the_step_of_a_stream_is_made_once() -> None:
    world = World(caching=False)
    world.add(make_request("a", prompt(4), max_tokens=40, min_tokens=3, ignore_eos=True))
    steps = []
    while world.step():
        steps += [seq.next_step for seq in world.scheduler._running]
    assert len({id(step) for step in steps[1:]}) == 1
    starts = [plan.sequences[0].start for plan in world.plans]
    assert starts == [0, *range(4, 43)]
    check_outputs(world)


def test_nothing_to_do_is_no_step() -> None:
    world = World()
    assert not world.step()
    world.add(make_request("a", prompt(3), max_tokens=1))
    world.run()
    assert not world.scheduler.has_work
    assert not world.step()


def test_histories_go_along_only_where_sampling_looks_at_them() -> None:
    world = World()
    world.add(make_request("plain", prompt(4), max_tokens=2, ignore_eos=True))
    world.add(make_request("penal", prompt(5), max_tokens=2, ignore_eos=True, presence_penalty=1.0))
    plan = world.scheduler.plan(0.0)
    assert plan is not None
    assert [list(step.history) for step in plan.sequences] == [[], prompt(5)]
    assert [step.num_prompt_tokens for step in plan.sequences] == [4, 5]


# --- how completions end


def test_a_stop_token_ends_a_completion_and_is_its_last() -> None:
    free = alone(make_request("a", prompt(5), max_tokens=20, ignore_eos=True, seed=1), 0)
    stop = free.token_ids[7]
    world = World()
    world.add(
        make_request("a", prompt(5), max_tokens=20, ignore_eos=True, seed=1, stop_token_ids=[stop])
    )
    world.run()
    completion = world.completions["a", 0]
    assert completion.reason is FinishReason.STOP
    assert completion.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


def test_stop_tokens_are_banned_until_min_tokens() -> None:
    world = World()
    world.add(make_request("a", prompt(5), max_tokens=8, min_tokens=3, stop_token_ids=[4, 2]))
    banned = []
    while world.step():
        banned.append(tuple(world.plans[-1].sequences[0].banned_token_ids))
    assert banned[:3] == [(0, 2, 4)] * 3
    assert set(banned[3:]) <= {()}
    assert len(world.completions["a", 0].token_ids) >= 3


@pytest.mark.parametrize("prompt_logprobs", [None, 0])
def test_zero_tokens_compute_the_prompt_and_end(prompt_logprobs: int | None) -> None:
    world = World(budget=16)
    params = {"max_tokens": 0, "n": 2, "prompt_logprobs": prompt_logprobs}
    world.add(make_request("a", prompt(20), **params))
    world.run()
    assert world.num_computed("a") == 20
    assert [(u.index, u.token_ids, u.finish_reason) for u in world.updates] == [
        (0, (), FinishReason.LENGTH),
        (1, (), FinishReason.LENGTH),
    ]
    assert [len(u.prompt_logprobs) for u in world.updates] == [
        0 if prompt_logprobs is None else 19,
        0,
    ]


def test_several_completions_share_the_prompt() -> None:
    world = World(budget=64, max_seqs=4)
    world.add(make_request("a", prompt(20), n=3, max_tokens=30, ignore_eos=True, seed=5))
    world.step()
    assert world.num_computed("a") == 20
    assert world.cache.usage.referenced == 2
    world.step()
    assert len(world.plans[1].block_copies) == 2  # the last one writes in place
    assert world.cache.usage.referenced == 4
    world.run()
    check_outputs(world)
    outputs = {tuple(completion.token_ids) for completion in world.completions.values()}
    assert len(outputs) == 3


# --- requests that cannot be served


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    world = World(num_blocks=4)
    world.add(make_request("fits", prompt(60), max_tokens=4))
    with pytest.raises(ContextLengthError, match=r"60 prompt tokens and 5 .* 64") as caught:
        world.add(make_request("long", prompt(60), max_tokens=5))
    assert (caught.value.prompt_tokens, caught.value.limit_tokens) == (60, 64)
    world.run()
    assert set(world.requests) == {"fits"}


@pytest.mark.parametrize(
    ("param", "request_id", "length", "params"),
    [
        ("prompt", "b", 0, {}),
        ("n", "b", 4, {"n": 5}),
        ("request_id", "a", 4, {}),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    param: str, request_id: str, length: int, params: dict[str, int]
) -> None:
    world = World(max_seqs=4)
    world.add(make_request("a", prompt(4), max_tokens=3))
    with pytest.raises(InvalidRequestError) as caught:
        world.add(make_request(request_id, prompt(length), max_tokens=3, **params))
    assert caught.value.param == param
    assert world.scheduler.num_waiting == 1


def test_an_id_is_free_again_when_its_request_has_ended() -> None:
    world = World()
    for _ in range(2):
        world.add(make_request("a", prompt(4), max_tokens=1))
        world.run()
    assert world.completions["a", 0].reason is FinishReason.LENGTH


# --- aborts and failures


def test_a_waiting_request_that_is_aborted_is_never_computed() -> None:
    world = World(max_seqs=3)
    for number in range(4):
        world.add(make_request(f"r{number}", prompt(4), max_tokens=5, ignore_eos=True))
    world.step()
    world.abort("r3")
    world.run()
    assert world.num_computed("r3") == 0
    assert world.completions["r3", 0].reason is FinishReason.ABORT


def test_an_abort_frees_blocks_at_once_and_leaves_the_next_step() -> None:
    world = World(budget=16, caching=False)
    world.add(make_request("a", prompt(100), max_tokens=5))
    world.step()
    world.abort("a")
    assert world.cache.usage.referenced == 0
    assert not world.step()


def test_one_completion_can_leave_alone() -> None:
    world = World(max_seqs=4)
    world.add(make_request("a", prompt(4), n=3, max_tokens=9, ignore_eos=True, seed=2))
    world.abort("a", 0)  # before the prompt is computed
    world.step()
    world.step()
    world.abort("a", 2)  # after
    world.run()
    reasons = [world.completions["a", index].reason for index in range(3)]
    assert reasons == [FinishReason.ABORT, FinishReason.LENGTH, FinishReason.ABORT]
    assert len(world.completions["a", 2].token_ids) == 2
    check_outputs(world)


def test_unknown_ids_are_ignored() -> None:
    world = World()
    assert world.scheduler.abort("nobody") == []
    world.add(make_request("a", prompt(4), max_tokens=1))
    assert world.scheduler.abort("a", 7) == []
    world.run()
    assert world.scheduler.abort("a") == []


def test_a_failed_step_ends_its_requests_and_no_others() -> None:
    world = World(max_seqs=3, budget=8)
    world.add(make_request("a", prompt(8), max_tokens=4, ignore_eos=True))
    world.add(make_request("b", prompt(30, first=3), max_tokens=4, ignore_eos=True))
    world.fail_next = True
    world.step()
    assert world.completions["a", 0].reason is FinishReason.ERROR
    assert world.cache.usage.referenced == 0
    world.run()
    assert world.completions["b", 0].reason is FinishReason.LENGTH
    check_outputs(world)


def test_a_result_for_another_plan_is_an_error_and_can_be_failed() -> None:
    world = World()
    world.add(make_request("a", prompt(4), max_tokens=4))
    world.scheduler.plan(0.0)
    for wrong in ((), (SequenceResult(99, (1,)),), (SequenceResult(0, ()),)):
        with pytest.raises(BackendError, match="does not answer"):
            world.scheduler.apply(StepResult(wrong), 0.0)
    assert world.scheduler.fail() == ["a"]
    assert not world.scheduler.has_work


def test_steps_do_not_overlap() -> None:
    world = World()
    with pytest.raises(RuntimeError, match="no step"):
        world.scheduler.apply(StepResult(()), 0.0)
    world.add(make_request("a", prompt(4), max_tokens=4))
    world.scheduler.plan(0.0)
    with pytest.raises(RuntimeError, match="previous step"):
        world.scheduler.plan(0.0)


# --- running out of blocks


def test_the_youngest_gives_way_and_comes_back_first() -> None:
    world = World(num_blocks=6, max_seqs=2, budget=64, caching=False, short_sighted=True)
    for name in "abc":
        world.add(make_request(name, prompt(20), max_tokens=60, ignore_eos=True))
    world.run()
    assert world.scheduler.stats.totals.preemptions > 0
    order = list(
        dict.fromkeys(update.request_id for update in world.updates if update.finish_reason)
    )
    assert order == ["a", "b", "c"]
    assert all("a" in share for share in world.shares[:60])  # the oldest never waits
    assert world.num_computed("a") == 20 + 59
    assert world.num_computed("b") > 20 + 59
    check_outputs(world)


@pytest.mark.parametrize("budget", [2, 3])
@pytest.mark.parametrize("caching", [True, False])
def test_a_prompt_that_is_scored_may_be_preempted_half_way(caching: bool, budget: int) -> None:
    num_blocks = -(-30 * budget // 16) + 3  # "old" outgrows its share before "new" is computed
    world = World(
        num_blocks=num_blocks, max_seqs=2, budget=budget, caching=caching, short_sighted=True
    )
    world.add(make_request("old", prompt(10), max_tokens=70, ignore_eos=True))
    world.add(make_request("new", prompt(30 * budget, 3), max_tokens=1, prompt_logprobs=1))
    while world.scheduler.stats.totals.preemptions == 0:
        assert world.step()
    assert 0 < world.num_computed("new") < 30 * budget
    world.run()
    check_outputs(world)
    assert len(world.prompt_logprobs["new"]) == 30 * budget - 1
    scored = [len(s.score_token_ids) for plan in world.plans for s in plan.sequences]
    assert sum(scored) < 30 * budget - 1 + budget  # again only in the chunk where it goes on


def test_what_a_preemption_costs_is_counted() -> None:
    world = World(num_blocks=6, budget=64, caching=False, short_sighted=True)
    for name in "ab":
        world.add(make_request(name, prompt(20), max_tokens=60, ignore_eos=True))
    world.run()
    totals = world.scheduler.stats.totals
    once = 2 * (20 + 60 - 1)  # the last token of a sequence is never computed
    assert totals.preemptions == sum(len(plan.notes.preempted) for plan in world.plans) > 0
    assert totals.recomputed_tokens > 0
    assert totals.computed_tokens == once + totals.recomputed_tokens
    assert totals.steps == len(world.plans)


def test_admission_leaves_room_to_grow() -> None:
    world = World(num_blocks=8, max_seqs=8, budget=200, caching=False)
    for number in range(8):
        world.add(make_request(f"r{number}", prompt(15), max_tokens=17, ignore_eos=True))
    world.run()
    assert world.scheduler.stats.totals.preemptions == 0
    assert max(len(share) for share in world.shares) == 4
