"""llama.cpp, by the programs that come with it."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foreword.bench.peers.base import PeerError, PeerSample
from foreword.bench.served import HOST, ServedProcess, ServedProcessError

_TIMEOUT_S = 600.0


class LlamaBench:
    """``llama-bench``: times a prompt without sampling, and decoding at the prompt's depth.

    It loads the model anew each time and warms up; neither is counted. It makes up its own token
    ids, which changes nothing for a dense model.

    Raises:
        PeerError: it cannot run the model.
    """

    name = "llama-bench"

    def __init__(self, program: Path, model: Path, num_threads: int) -> None:
        self._command = [str(program), "-m", str(model), "-t", str(num_threads)]
        self._command += ["-r", "1", "-o", "json"]
        result = self._run("-p", "1", "-n", "0")
        self.version = f"b{result['build_number']}, {result['model_type']}"

    def measure(self, prompt_token_ids: Sequence[int], output_tokens: int) -> PeerSample:
        """See `Peer.measure`."""
        length = str(len(prompt_token_ids))
        prompt_s = _seconds(self._run("-p", length, "-n", "0"))
        later = output_tokens - 1
        if later < 1:
            return PeerSample(prompt_s, None)
        decode_s = _seconds(self._run("-p", "0", "-n", str(later), "-d", length))
        return PeerSample(prompt_s, decode_s / later)

    def close(self) -> None:
        """Nothing runs between measurements."""

    def _run(self, *arguments: str) -> dict[str, Any]:
        """One test of one repetition."""
        try:
            done = subprocess.run(
                [*self._command, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerError(f"{self.name}: {error}") from error
        try:
            (result,) = json.loads(done.stdout)
        except ValueError:
            words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise PeerError(f"{self.name}: {words[-1]}") from None
        return dict(result)


class LlamaServer:
    """``llama-server``: the same prompt and continuation over HTTP, on the loopback interface.

    Raises:
        PeerError: it did not come up.
    """

    name = "llama-server"

    def __init__(self, program: Path, model: Path, num_threads: int, max_tokens: int) -> None:
        command = [str(program), "-m", str(model), "-t", str(num_threads), "-c", str(max_tokens)]
        command += ["-np", "1", "--host", HOST, "--port", "{port}"]
        try:
            self._server = ServedProcess(self.name, command, ready_path="/health")
        except ServedProcessError as error:
            raise PeerError(str(error)) from error
        try:
            self._server.wait_until_ready()
            with self._request("GET", "/props") as response:
                props = json.load(response)
        except ServedProcessError as error:
            self.close()
            raise PeerError(str(error)) from error
        except BaseException:
            self.close()
            raise
        self.version = str(props.get("build_info", "unknown"))

    def measure(self, prompt_token_ids: Sequence[int], output_tokens: int) -> PeerSample:
        """See `Peer.measure`."""
        body = {
            "prompt": list(prompt_token_ids),
            "n_predict": output_tokens,
            "stream": True,
            "cache_prompt": False,
            "temperature": 0.0,
            "ignore_eos": True,
        }
        began_s = time.perf_counter()
        arrivals_s: list[float] = []
        last: dict[str, Any] = {}
        try:
            with self._request("POST", "/completion", json.dumps(body)) as response:
                for line in response:
                    if line.startswith(b"data: "):
                        arrivals_s.append(time.perf_counter() - began_s)
                        last = json.loads(line[len(b"data: ") :])
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PeerError(f"{self.name}: {error}") from error
        if last.get("tokens_predicted") != output_tokens:
            raise PeerError(f"{self.name} did not make {output_tokens} tokens: {last}")
        later = output_tokens - 1
        first_s = arrivals_s[0]
        return PeerSample(first_s, (arrivals_s[-1] - first_s) / later if later else None)

    def close(self) -> None:
        """End the server."""
        self._server.close()

    @contextmanager
    def _request(
        self, method: str, path: str, body: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(HOST, self._server.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise PeerError(f"{self.name} answered {response.status} to {path}")
            yield response
        finally:
            connection.close()


def _seconds(result: dict[str, Any]) -> float:
    return float(result["avg_ns"]) / 1e9
