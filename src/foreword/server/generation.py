"""One HTTP request's work in the engine: its prompts, each with ``n`` completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from foreword.core.params import SamplingParams
from foreword.core.request import FinishReason, Urgency
from foreword.core.trace import RequestTrace
from foreword.engine.async_engine import AsyncEngine
from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
from foreword.errors import InvalidRequestError, OverloadedError
from foreword.metrics.history import RequestHistory
from foreword.metrics.observer import RequestObserver
from foreword.metrics.record import RequestRecord, prompt_id
from foreword.server.errors import spelled


class Generation:
    """Runs the prompts of one HTTP request side by side, and keeps its record.

    Args:
        history: where the record is kept, unless the request turns out not to be servable.
        observers: told of what is written, and of the end.
        record: of the request; completed here.
        prompts: token ids, a list for each prompt.
        urgency: of all of them.
        param: how the caller spells the parameter that holds the prompt.
        cache_salt, tenant: see `foreword.core.request.Request`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        history: RequestHistory,
        observers: Sequence[RequestObserver],
        record: RequestRecord,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        urgency: Urgency,
        param: str,
        cache_salt: str,
        tenant: str,
    ) -> None:
        self.record = record
        self.prompts = prompts
        self.params = params
        self._urgency = urgency
        self._engine = engine
        self._cache_salt = cache_salt
        self._tenant = tenant
        self._history = history
        self._observers = observers
        self._names: Mapping[str, str] = {"prompt": param}
        self._traces = [record.trace, *(RequestTrace() for _ in prompts[1:])]
        self._seen: set[int] = set()
        self._refused = False

    async def run(self) -> AsyncGenerator[tuple[int, RequestDelta], None]:
        """Yield ``(index of the prompt, its delta)`` until every prompt is done.

        Closing the iterator, or an error in one prompt, ends all of them.

        Raises:
            InvalidRequestError: a prompt cannot be served as written; before any delta.
            OverloadedError: a prompt may not wait; before any delta.
            QueueTimeoutError: a prompt has waited for too long.
            EngineStoppedError: the engine takes no more requests, or has stopped.
            BackendError: a step failed.
        """
        self._history.add(self.record)
        streams = [self._submit(index) for index in range(len(self.prompts))]
        try:
            with spelled(self._names):
                async with aclosing(merge(streams)) as deltas:
                    async for index, delta in deltas:
                        self._take_in(index, delta)
                        yield index, delta
            self.record.status = "finished"
        except (InvalidRequestError, OverloadedError):  # nothing has begun that could have ended
            self._refused = True
            self._history.discard(self.record.id)
            raise
        except Exception:
            self.record.status = "failed"
            raise
        finally:
            if self.record.status == "running":
                self.record.status = "aborted"

    async def collect(self) -> list[RequestOutput]:
        """Run to the end and return the whole, an output for each prompt."""
        outputs = [
            RequestOutput(
                request_id=self.record.id,
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
        gap_s = self.record.lifetime.written()
        if gap_s is not None:
            for observer in self._observers:
                observer.written(gap_s)

    def over(self) -> None:
        """Note that nothing more will be written. To be called once, whatever happened."""
        if self._refused:
            return
        record = self.record
        record.lifetime.ended_s = time.monotonic()
        reason = FinishReason.ERROR if record.status == "failed" else FinishReason.ABORT
        unfinished = record.completions - len(record.finish_reasons)
        record.finish_reasons += [reason.value] * unfinished
        for observer in self._observers:
            observer.ended(record)

    def _submit(self, index: int) -> AsyncIterator[RequestDelta]:
        return self._engine.generate(
            self.prompts[index],
            self.params,
            request_id=prompt_id(self.record.id, index),
            arrival_s=self.record.lifetime.received_s,
            cache_salt=self._cache_salt,
            trace=self._traces[index],
            urgency=self._urgency,
            tenant=self._tenant,
        )

    def _take_in(self, index: int, delta: RequestDelta) -> None:
        record, usage = self.record, self.record.usage
        if index not in self._seen:
            self._seen.add(index)
            usage.prompt += delta.num_prompt_tokens
            usage.cached += delta.num_cached_tokens
            for tier, num_tokens in self._traces[index].num_loaded_tokens.items():
                usage.loaded[tier] += num_tokens
            record.saved_s += self._traces[index].saved_s
        for completion in delta.completions:
            usage.generated += len(completion.token_ids)
            if completion.finish_reason is not None:
                record.finish_reasons.append(completion.finish_reason.value)
        if self._decides(delta):
            record.trace = self._traces[index]
            record.lifetime.delivered_s = time.monotonic()

    def _decides(self, delta: RequestDelta) -> bool:
        """Whether, so far, it is this delta that the first content has waited for."""
        if not self.record.stream:
            return delta.finished
        return self.record.lifetime.delivered_s is None and any(
            completion.text for completion in delta.completions
        )


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
