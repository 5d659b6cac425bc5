"""The two sides: options of our server, the URL of a running one, or a command that starts one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from foreword.bench.ab.blocks import Side
from foreword.bench.served import ServedProcess
from foreword.config.engine import EngineOptions
from foreword.errors import ConfigError

_PORT = "{port}"


@dataclass(frozen=True, slots=True)
class Arm:
    """How to get a server of one side.

    Attributes:
        text: as it was given.
        command: starts it; None: it runs at ``url``.
        engine: what our server's options say of the engine; None: not our options.
    """

    text: str
    url: str | None = None
    command: tuple[str, ...] | None = None
    engine: EngineOptions | None = None

    @classmethod
    def parse(cls, side: Side, text: str) -> Arm | None:
        """Read a URL, or a command with ``{port}``; None: it is neither, so options of ours.

        Raises:
            ConfigError: quotes do not match.
        """
        if text.startswith(("http://", "https://")):
            return cls(text, url=text)
        return cls(text, command=tuple(split(side, text))) if _PORT in text else None

    @classmethod
    def of_ours(cls, text: str, words: Sequence[str], engine: EngineOptions) -> Arm:
        """Make a side from the words after ``foreword serve`` and what they mean."""
        command = (sys.executable, "-m", "foreword", "serve", "--port", _PORT, *words)
        return cls(text, command=command, engine=engine)


@dataclass(frozen=True, slots=True)
class RunningArm:
    """A side whose server answers.

    Attributes:
        process: None where somebody else started it.
    """

    arm: Arm
    url: str
    process: ServedProcess | None

    def restarts(self, asked: bool | None) -> bool:
        """Whether it is started anew before each of its blocks.

        Raises:
            ConfigError: that is asked for, and somebody else started it.
        """
        if asked and self.process is None:
            raise ConfigError("restart", f"{self.url} is not ours to start")
        return self.arm.engine is not None if asked is None else asked

    def cpu_s(self) -> float | None:
        """Processor seconds so far, where they can be known."""
        return self.process.cpu_s() if self.process is not None else None


def split(side: Side, text: str) -> list[str]:
    """Cut a side's text into words, as a shell does.

    Raises:
        ConfigError: quotes do not match.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(side, f"{text!r}: {error}") from None


@contextmanager
def running(arms: Mapping[Side, Arm]) -> Iterator[dict[Side, RunningArm]]:
    """Start what has to be started, both at once; end it afterwards, whatever happened.

    Raises:
        ServedProcessError: a side did not come up.
    """
    with ExitStack() as stack:
        started: dict[Side, RunningArm] = {}
        for side, arm in arms.items():
            process = None
            if arm.command is not None:
                process = ServedProcess(f"side {side}", arm.command, ready_path="/v1/models")
                stack.callback(process.close)
            url = process.url if process is not None else str(arm.url)
            started[side] = RunningArm(arm, url, process)
        for side_running in started.values():
            if side_running.process is not None:
                side_running.process.wait_until_ready()
        yield started
