"""Servers that a measurement starts, and ends whatever becomes of it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from foreword.errors import ForewordError

HOST = "127.0.0.1"
_START_TIMEOUT_S = 120.0
_FAREWELL_S = 5.0
_PORT = "{port}"


class ServedProcessError(ForewordError):
    """A server did not come up; says what it printed last."""


class ServedProcess:
    """A command that serves HTTP on the port it is given, in a process group of its own.

    A signal to this process's group (Ctrl-C in a terminal) does not reach it: its owner decides
    when it ends.

    Args:
        name: as errors call it.
        command: the words; ``{port}`` in them becomes a free port.
        ready_path: asked until the answer is no 5xx: a server that loads says 503, and one that
            wants a key, 401.

    Raises:
        ServedProcessError: it cannot be started.
    """

    def __init__(self, name: str, command: Sequence[str], *, ready_path: str) -> None:
        self.port = _free_port()
        self._name = name
        self._words = [word.replace(_PORT, str(self.port)) for word in command]
        self._ready_path = ready_path
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (`close` does)
        try:
            self._process = self._start()
        except ServedProcessError:
            self._log.close()
            raise

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that was started last, the leader of its group."""
        return self._process.pid

    def wait_until_ready(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Block until it answers.

        Raises:
            ServedProcessError: it ended, or took too long.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise ServedProcessError(f"{self._name} ended: {self.last_words()}")
            if self._answers():
                return
            time.sleep(0.05)
        raise ServedProcessError(f"{self._name} was not ready within {timeout_s:.0f} s")

    def restart(self) -> None:
        """End it, start it anew on the same port, and block until it answers.

        Raises:
            ServedProcessError: it did not come up again.
        """
        self._end()
        self._process = self._start()
        self.wait_until_ready()

    def last_words(self) -> str:
        """The last line that it printed."""
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def cpu_s(self) -> float:
        """Processor seconds of it and its children so far."""
        ticks = sum(_ticks(path, self._process.pid) for path in Path("/proc").glob("[0-9]*/stat"))
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it and its children: asked first, then killed."""
        self._end()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise ServedProcessError(f"{self._name}: {error}") from error

    def _end(self) -> None:
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10.0)
        try:
            connection.request("GET", self._ready_path)
            return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):  # not listening yet
            return False
        finally:
            connection.close()


def _ticks(stat: Path, session: int) -> int:
    """Clock ticks of a process and its waited-for children, if it is of ``session``."""
    try:
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    # proc(5): state is field 3, session 6, utime to cstime 14 to 17
    return sum(map(int, fields[11:15])) if int(fields[3]) == session else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
