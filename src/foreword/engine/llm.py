"""The engine for scripts and notebooks: blocking calls, no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foreword.config.engine import DEFAULT_MODEL, EngineConfig, EngineOptions
from foreword.core.params import SamplingParams
from foreword.core.request import Request
from foreword.engine.build import build_engine
from foreword.engine.engine import Engine
from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
from foreword.errors import InvalidRequestError
from foreword.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | dict[str, Any]
Message = Mapping[str, Any]


class LLM:
    """A model, loaded and ready to answer.

    >>> llm = LLM("smollm2:135m")
    >>> llm.chat([{"role": "user", "content": "Hello"}])[0].outputs[0].text

    Not thread-safe; for concurrent callers there is `AsyncEngine`.

    Args:
        model: a name that ``foreword models`` lists, a path, or ``hf:org/repo/file.gguf``.
        options: the fields of `EngineOptions` (``max_model_len``, ``max_num_seqs`` …).

    Raises:
        ModelNotFoundError: there is no such model here.
        ModelFileError: its file is damaged.
        UnsupportedModelError: foreword cannot run it.
        ConfigError: an option has a value that cannot work.
        TypeError: there is no such option.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **options: Any) -> None:
        self.engine: Engine = build_engine(EngineOptions(model=model, **options))

    @classmethod
    def from_engine(cls, engine: Engine) -> LLM:
        """Wrap an engine that has been put together elsewhere."""
        llm = cls.__new__(cls)
        llm.engine = engine
        return llm

    def close(self) -> None:
        """Finish writing to disk what ``kv_disk_path`` keeps; of no use without it."""
        self.engine.close()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

    @property
    def config(self) -> EngineConfig:
        """The settings as they were resolved."""
        return self.engine.config

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Continue one prompt or several, together, and return them in order.

        Args:
            prompts: text, token ids, ``{"prompt": text}``, ``{"prompt_token_ids": ids}``, or a
                list of those.
            sampling_params: one for all, or one for each prompt.

        Raises:
            InvalidRequestError: a prompt or parameter cannot be served; nothing is generated.
            BackendError: a step failed.
        """
        batch = _as_batch(prompts)
        params = _one_each(sampling_params, len(batch))
        return self._run([self._encode(prompt) for prompt in batch], params)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several with the model's chat template.

        Args:
            messages: ``{"role": …, "content": …}`` dicts, or a list of such lists.
            sampling_params: one for all, or one for each conversation.
            template_options: passed to `Tokenizer.encode_chat` (``add_generation_prompt`` …).

        Raises:
            TemplateError: the model has no chat template, or it failed.
            InvalidRequestError: as for `generate`.
        """
        single = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = [messages] if single else messages
        prompts = [
            (None, self.tokenizer.encode_chat(conversation, **template_options))
            for conversation in conversations
        ]
        return self._run(prompts, _one_each(sampling_params, len(prompts)))

    def stream(
        self,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[RequestDelta]:
        """Continue one prompt and yield what each step brings.

        Leaving the loop early aborts the request; so does ``cancelled``, which is asked before
        each step and therefore heard while a long prompt brings nothing to yield. Raises as
        `generate` does.
        """
        params = sampling_params or SamplingParams()
        request = self.engine.make_request(prompt_token_ids, params)
        self.engine.add(self.engine.prepare(request))
        try:
            while self.engine.has_work and not cancelled():
                for delta in self.engine.step():
                    if delta.request_id != request.request_id:
                        continue
                    if delta.error is not None:
                        raise delta.error
                    yield delta
        finally:
            self.engine.abort(request.request_id)

    def _encode(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """Return the prompt's text, where there is one, and its token ids."""
        if isinstance(prompt, dict):
            for key in ("prompt_token_ids", "prompt"):
                if key in prompt:
                    return self._encode(prompt[key])
            raise InvalidRequestError("a dict needs prompt or prompt_token_ids", param="prompt")
        if isinstance(prompt, str):
            return prompt, self.tokenizer.encode(prompt)
        return None, list(prompt)

    def _run(
        self, prompts: Sequence[tuple[str | None, list[int]]], params: Sequence[SamplingParams]
    ) -> list[RequestOutput]:
        requests: list[Request] = []
        outputs: dict[str, RequestOutput] = {}
        for (text, token_ids), each in zip(prompts, params, strict=True):
            request = self.engine.make_request(token_ids, each)
            requests.append(request)
            outputs[request.request_id] = RequestOutput(
                request_id=request.request_id,
                prompt=text,
                prompt_token_ids=token_ids,
                outputs=[CompletionOutput(index) for index in range(each.n)],
            )
        try:
            for request in requests:
                self.engine.add(self.engine.prepare(request))
            self._finish(outputs, {request.request_id: request for request in requests})
        finally:
            for request in requests:
                self.engine.abort(request.request_id)  # no-op where it has ended
        return list(outputs.values())

    def _finish(self, outputs: dict[str, RequestOutput], open_requests: dict[str, Request]) -> None:
        while open_requests:
            deltas = self.engine.step()
            now = self.engine.clock()
            for delta in deltas:
                output = outputs.get(delta.request_id)
                if output is None:
                    continue
                if delta.error is not None:
                    raise delta.error
                output.extend(delta)
                elapsed_s = now - open_requests[delta.request_id].arrival_s
                if output.ttft_s is None:
                    output.ttft_s = elapsed_s
                if delta.finished:
                    output.e2e_s = elapsed_s
                    del open_requests[delta.request_id]


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise InvalidRequestError(
            f"{len(params)} sampling parameters for {count} prompts", param="sampling_params"
        )
    return list(params)
