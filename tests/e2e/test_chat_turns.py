"""A turn of a chat computes what is new, and at most the last answer again."""

from __future__ import annotations

from pydoc_data.topics import topics

import pytest

from foreword import LLM, SamplingParams
from foreword.text.template import ChatTemplate

pytestmark = pytest.mark.model

WORDS = topics["assignment"].split()
TURN = 8  # words of a question

# The file has none; this is what Gemma was trained on.
GEMMA = (
    "{% for message in messages %}<start_of_turn>"
    "{{ 'model' if message.role == 'assistant' else 'user' }}\n"
    "{{ message.content | trim }}<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
)


def common(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return next((at for at, (one, two) in enumerate(pairs) if one != two), len(ours))


@pytest.mark.parametrize(("model", "turns"), [("smollm2:135m", 30), ("gemma3:270m", 10)])
def test_turns_compute_new_tokens_and_a_bounded_seam(model: str, turns: int) -> None:
    llm = LLM(model, max_model_len=2048, num_blocks=140)
    if llm.tokenizer.chat_template is None:
        llm.tokenizer.chat_template = ChatTemplate(GEMMA)
    params = SamplingParams(temperature=0.0, max_tokens=8)
    messages: list[dict[str, str]] = []
    known: list[int] = []  # whose keys and values are there: all but those of the last token
    num_answer, seams = 0, []
    for turn in range(turns):
        question = " ".join(WORDS[turn * TURN : (turn + 1) * TURN])
        messages.append({"role": "user", "content": question})
        prompt = llm.tokenizer.encode_chat(messages)
        [output] = llm.generate([prompt], params)
        [answer] = output.outputs
        assert output.num_cached_tokens == min(common(known, prompt), len(prompt) - 1)
        seams.append(len(known) - common(known, prompt))
        assert seams[-1] <= num_answer
        messages.append({"role": "assistant", "content": answer.text})
        known = [*prompt, *answer.token_ids][:-1]
        num_answer = len(answer.token_ids)
    assert sum(seams) <= turns  # greedy answers are mostly tokenised as they were generated
    llm.close()
