"""One HTTP request's work in the engine: its prompts, each with ``n`` completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from foreword.core.params import SamplingParams
from foreword.core.request import FinishReason
from foreword.engine.async_engine import AsyncEngine
from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
from foreword.errors import InvalidRequestError
from foreword.metrics.lifetime import Lifetime
from foreword.metrics.prometheus import ServingMetrics
from foreword.server.errors import spelled


@dataclass(slots=True)
class Usage:
    """Token counts of a request, as OpenAI reports them."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return OpenAI's ``usage`` object."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Generation:
    """Runs the prompts of one HTTP request side by side, and keeps its accounts.

    Args:
        prompts: token ids, a list for each prompt.
        lifetime: the request's instants; completed here.
        param: how the caller spells the parameter that holds the prompt.
        stream: whether the answer is streamed; for the metrics.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        metrics: ServingMetrics,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        request_id: str,
        lifetime: Lifetime,
        param: str,
        stream: bool,
    ) -> None:
        self.prompts = prompts
        self.params = params
        self.request_id = request_id
        self.usage = Usage()
        self._engine = engine
        self._metrics = metrics
        self._lifetime = lifetime
        self._names: Mapping[str, str] = {"prompt": param}
        self.stream = stream
        self._open = {
            (index, choice) for index in range(len(prompts)) for choice in range(params.n)
        }

    async def run(self) -> AsyncGenerator[tuple[int, RequestDelta], None]:
        """Yield ``(index of the prompt, its delta)`` until every prompt is done.

        Closing the iterator, or an error in one prompt, ends all of them.

        Raises:
            InvalidRequestError: a prompt cannot be served as written; before any delta.
            EngineStoppedError: the engine takes no more requests, or has stopped.
            BackendError: a step failed.
        """
        self._lifetime.queued()
        seen: set[int] = set()
        streams = [self._submit(index) for index in range(len(self.prompts))]
        try:
            with spelled(self._names):
                async with aclosing(merge(streams)) as deltas:
                    async for index, delta in deltas:
                        self._count(index, delta, first=index not in seen)
                        seen.add(index)
                        yield index, delta
        except InvalidRequestError:  # refused: nothing has begun that could have ended
            self._open.clear()
            raise
        except Exception:
            self._end(FinishReason.ERROR)
            raise
        finally:
            self._end(FinishReason.ABORT)
            self._metrics.generated(self.usage.generated)

    async def collect(self) -> list[RequestOutput]:
        """Run to the end and return the whole, an output for each prompt."""
        outputs = [
            RequestOutput(
                request_id=self.request_id,
                prompt=None,
                prompt_token_ids=list(prompt),
                outputs=[CompletionOutput(choice) for choice in range(self.params.n)],
            )
            for prompt in self.prompts
        ]
        async with aclosing(self.run()) as deltas:
            async for index, delta in deltas:
                outputs[index].extend(delta)
        return outputs

    def written(self) -> None:
        """Note that content has just been written to the client."""
        gap_s = self._lifetime.written()
        if gap_s is not None:
            self._metrics.gap(gap_s)

    def record(self) -> None:
        """Give the request's times to the metrics, once it is over."""
        self._metrics.latencies(self._lifetime, stream=self.stream)

    def _submit(self, index: int) -> AsyncIterator[RequestDelta]:
        return self._engine.generate(
            self.prompts[index],
            self.params,
            request_id=f"{self.request_id}-{index}",
            arrival_s=self._lifetime.received_s,
        )

    def _count(self, index: int, delta: RequestDelta, *, first: bool) -> None:
        if first:
            self.usage.prompt += delta.num_prompt_tokens
            self.usage.cached += delta.num_cached_tokens
            self._lifetime.scheduled_s = delta.first_scheduled_s
        for completion in delta.completions:
            self.usage.generated += len(completion.token_ids)
            if completion.finish_reason is not None:
                self._open.discard((index, completion.index))
                self._metrics.completion(completion.finish_reason.value)

    def _end(self, reason: FinishReason) -> None:
        """Count what has not finished by now as ended for ``reason``."""
        for _ in self._open:
            self._metrics.completion(reason.value)
        self._open.clear()


async def merge(
    streams: Sequence[AsyncIterator[RequestDelta]],
) -> AsyncGenerator[tuple[int, RequestDelta], None]:
    """Yield ``(index of the stream, delta)`` as deltas come; the first error ends all."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:  # type: ignore[type-var]
            async for delta in only:
                yield 0, delta
        return
    queue: asyncio.Queue[tuple[int, RequestDelta | Exception | None]] = asyncio.Queue()
    tasks = [asyncio.ensure_future(_pump(i, stream, queue)) for i, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            index, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int,
    stream: AsyncIterator[RequestDelta],
    queue: asyncio.Queue[tuple[int, RequestDelta | Exception | None]],
) -> None:
    try:
        async for delta in stream:
            queue.put_nowait((index, delta))
    except Exception as error:
        queue.put_nowait((index, error))
    else:
        queue.put_nowait((index, None))
