"""Engines that run in a Python of their own."""

from __future__ import annotations

import json
import select
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foreword.bench.peers.base import PeerError, PeerSample

_MAIN = Path(__file__).with_name("worker_main.py")
_START_TIMEOUT_S = 300.0  # some engines compile
_ANSWER_TIMEOUT_S = 300.0


class WorkerPeer:
    """``worker_main.py`` in another process, which loads the model once.

    Args:
        name: an engine that ``worker_main.py`` knows.
        python: the interpreter that has it.
        config: see ``worker_main.py``.

    Raises:
        PeerError: it did not come up; says what it printed last.
    """

    def __init__(self, name: str, python: Path, config: dict[str, Any]) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (`close` does)
        self._process = subprocess.Popen(
            [str(python), str(_MAIN), name, json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self.version = str(self._answer(_START_TIMEOUT_S)["version"])
        except BaseException:
            self.close()
            raise

    def measure(self, prompt_token_ids: Sequence[int], output_tokens: int) -> PeerSample:
        """See `Peer.measure`."""
        request = {"prompt_token_ids": list(prompt_token_ids), "output_tokens": output_tokens}
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except OSError:
            raise PeerError(f"{self.name} has died: {self._last_words()}") from None
        arrivals_s = self._answer(_ANSWER_TIMEOUT_S)["arrivals_s"]
        if len(arrivals_s) != output_tokens:
            raise PeerError(f"{self.name} made {len(arrivals_s)} tokens of {output_tokens}")
        first_s, last_s = arrivals_s[0], arrivals_s[-1]
        later = sum(arrival_s > first_s for arrival_s in arrivals_s)
        return PeerSample(first_s, (last_s - first_s) / later if later else None)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], timeout_s)[0]:
            raise PeerError(f"{self.name} has not answered for {timeout_s:.0f} s")
        line = stdout.readline()
        if not line:
            raise PeerError(f"{self.name} has died: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"
