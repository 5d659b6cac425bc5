"""`LLM` and `Engine` over a scripted backend."""

from __future__ import annotations

import pytest
from support.scripted import EOS, tiny_engine

from foreword import LLM, FinishReason, SamplingParams
from foreword.core.step import StepPlan
from foreword.errors import BackendError, ContextLengthError, InvalidRequestError


def llm(**options: object) -> LLM:
    return LLM.from_engine(tiny_engine(**options))  # type: ignore[arg-type]


def text_of(model: LLM, prompt: object, **params: object) -> str:
    output = model.generate(prompt, SamplingParams(max_tokens=20, **params))[0]  # type: ignore[arg-type]
    return output.outputs[0].text


def test_prompts_may_be_text_or_ids_one_or_many() -> None:
    model = llm()
    ids = list(b"say:hello")
    for prompt in ("say:hello", ids, {"prompt": "say:hello"}, {"prompt_token_ids": ids}):
        assert text_of(model, prompt) == "hello"
    outputs = model.generate(["say:one", list(b"say:two")], SamplingParams())
    assert [output.outputs[0].text for output in outputs] == ["one", "two"]
    assert [output.prompt for output in outputs] == ["say:one", None]
    assert model.generate([], SamplingParams()) == []


def test_each_prompt_may_have_its_own_parameters() -> None:
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=4)]
    outputs = llm().generate(["say:abcdef"] * 2, params)
    assert [output.outputs[0].text for output in outputs] == ["ab", "abcd"]
    with pytest.raises(InvalidRequestError, match="1 sampling parameters for 2 prompts"):
        llm().generate(["a", "b"], params[:1])


def test_a_finished_output_is_complete() -> None:
    model = llm()
    output = model.generate("say:hello", SamplingParams(n=2, max_tokens=9))[0]
    assert output.prompt_token_ids == list(b"say:hello")
    assert [o.index for o in output.outputs] == [0, 1]
    for completion in output.outputs:
        assert completion.text == "hello"
        assert completion.token_ids == [*b"hello", EOS]
        assert completion.finish_reason is FinishReason.STOP
    assert output.ttft_s is not None
    assert output.e2e_s is not None
    assert 0 < output.ttft_s <= output.e2e_s


def test_a_stop_string_ends_one_completion_and_frees_its_blocks() -> None:
    model = llm()
    assert text_of(model, "say:one two three", stop="two") == "one "
    stats = model.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.blocks.referenced) == (0, 0, 0)


def test_leaving_a_stream_frees_the_request() -> None:
    model = llm()
    for delta in model.stream(list(b"say:abcdefgh"), SamplingParams(max_tokens=8)):
        assert delta.completions[0].text == "a"
        break
    stats = model.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.blocks.referenced) == (0, 0, 0)


def test_output_ends_with_the_context() -> None:
    output = llm(max_model_len=32).generate("x" * 20, SamplingParams(max_tokens=10_000))[0]
    assert len(output.outputs[0].token_ids) == 12
    assert output.outputs[0].finish_reason is FinishReason.LENGTH


def test_a_prompt_over_the_context_is_refused_with_both_counts() -> None:
    with pytest.raises(ContextLengthError, match=r"40 tokens.* 32") as caught:
        llm(max_model_len=32).generate("x" * 40)
    assert (caught.value.prompt_tokens, caught.value.limit_tokens) == (40, 32)


def test_a_request_that_no_pool_can_hold_is_refused_and_the_rest_of_its_batch_too() -> None:
    model = llm(num_blocks=2)
    with pytest.raises(ContextLengthError, match="32"):
        model.generate(["say:a", "x" * 30], SamplingParams(max_tokens=10))
    assert not model.engine.has_work


@pytest.mark.parametrize("prompt", [[], [-1], [257], [2**40], [1.5], [True], [[1]], [None]])
def test_prompts_that_are_no_tokens_are_refused(prompt: list[object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm().generate([prompt])  # type: ignore[list-item]
    assert caught.value.param == "prompt"


def test_a_prompt_without_tokens_is_refused_however_it_is_written() -> None:
    for prompt in ("", {"prompt": ""}, {"prompt_token_ids": []}, {}):
        with pytest.raises(InvalidRequestError) as caught:
            llm().generate(prompt)
        assert caught.value.param == "prompt"


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="logit_bias"):
        llm().generate("a", SamplingParams(logit_bias={257: 1}))


def test_a_failed_step_ends_its_requests_and_the_engine_goes_on() -> None:
    broken = [True]

    def on_step(plan: StepPlan) -> None:
        del plan
        if broken[0]:
            raise BackendError("no such luck")

    model = llm(on_step=on_step)
    with pytest.raises(BackendError, match="no such luck"):
        model.generate(["say:one", "say:two"])
    assert not model.engine.has_work
    broken[0] = False
    assert text_of(model, "say:three") == "three"


def test_an_interrupted_step_leaves_the_engine_fit_for_use() -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupt_once(plan: StepPlan) -> None:
        del plan
        if interrupts:
            raise interrupts.pop()

    model = llm(on_step=interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        model.generate(["say:one", "say:two"])
    assert model.engine.stats().blocks.referenced == 0
    assert text_of(model, "say:hello") == "hello"


def test_a_stream_is_cancelled_between_steps() -> None:
    steps: list[StepPlan] = []
    model = llm(on_step=steps.append, max_num_batched_tokens=16)
    deltas = model.stream(list(b"x" * 160), cancelled=lambda: len(steps) == 3)
    assert list(deltas) == []  # a prompt of ten chunks, given up after the third
    assert len(steps) == 3
    assert model.engine.stats().blocks.referenced == 0


def test_seeds_are_drawn_where_none_is_given_and_follow_the_engines() -> None:
    params = SamplingParams()
    seeds = [tiny_engine().make_request([1], params).seed for _ in range(2)]
    assert seeds[0] == seeds[1]  # both engines have seed 0
    engine = tiny_engine()
    assert len({engine.make_request([1], params).seed for _ in range(9)}) == 9
    assert engine.make_request([1], SamplingParams(seed=-1)).seed == 2**64 - 1


def test_warming_up_leaves_no_trace() -> None:
    engine = tiny_engine()
    engine.warm_up()
    stats = engine.stats()
    assert stats.blocks.free == stats.blocks.total
    assert text_of(LLM.from_engine(engine), "say:hello") == "hello"
