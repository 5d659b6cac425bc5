from __future__ import annotations

import asyncio

import pytest

from foreword.server.asgi import ClientLeftError, while_connected


class Client:
    """One that leaves when it is told to."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()

    def leave(self) -> None:
        self._gone.set()

    async def receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}


class Work:
    """Waits for good, and notes how that ended."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = False

    async def run(self):
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # ending takes a while
            self.ended = True


async def answer():
    await asyncio.sleep(0)
    return "answer"


def test_gives_what_the_work_gave():
    async def main():
        assert await while_connected(Client().receive, answer()) == "answer"
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nobody watches any more

    asyncio.run(main())


def test_work_has_ended_when_it_is_known_that_the_client_left():
    async def main():
        client, work = Client(), Work()
        asyncio.get_running_loop().call_soon(client.leave)
        with pytest.raises(ClientLeftError):
            await while_connected(client.receive, work.run())
        assert work.ended
        await asyncio.sleep(0)  # the task goes on: what cancelled the work is over

    asyncio.run(main())


def test_to_be_cancelled_is_not_that_the_client_left():
    async def main():
        work = Work()
        task = asyncio.ensure_future(while_connected(Client().receive, work.run()))
        await work.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.ended

    asyncio.run(main())
