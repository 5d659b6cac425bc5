"""Servers that are started and ended for a measurement."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from support.waiting import wait_for

from foreword.bench.served import ServedProcess, ServedProcessError

_SERVE = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = time.monotonic() > began + 0.2
        self.send_response(200 if ready and self.path == "/ready" else 503)
        self.end_headers()
    def log_message(self, *_): pass
began = time.monotonic()
print("hello", flush=True)
"""
SERVER = _SERVE + 'http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()'
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]])
open(sys.argv[3], "w").write(str(child.pid))
child.wait()
"""


def test_it_waits_until_ready_and_ends_children_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, "{port}", SERVER, str(pid_file)]
    began = time.monotonic()
    server = ServedProcess("it", command, ready_path="/ready")
    server.wait_until_ready()
    assert time.monotonic() - began > 0.2, "it answered 503 until then"
    assert server.url == f"http://127.0.0.1:{server.port}"
    assert server.last_words() == "hello"
    assert 0 < server.cpu_s() < 60
    child = int(pid_file.read_text())
    assert is_running(child)
    server.close()
    wait_for(lambda: not is_running(child))


def test_it_is_started_anew_on_the_same_port() -> None:
    server = ServedProcess("it", [sys.executable, "-c", SERVER, "{port}"], ready_path="/ready")
    try:
        server.wait_until_ready()
        first, url = server.pid, server.url
        server.restart()
        assert server.url == url
        assert server.pid != first
        assert not is_running(first)
    finally:
        server.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processor_time_is_its_own_and_its_childrens(tmp_path: Path) -> None:
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"
    command = [sys.executable, "-c", PARENT, "0", burn + "time.sleep(60)", str(tmp_path / "pid")]
    server = ServedProcess("it", command, ready_path="/")
    try:
        wait_for(lambda: server.cpu_s() >= 0.5)
    finally:
        server.close()


def test_one_that_ends_says_its_last_words() -> None:
    command = [sys.executable, "-c", "print('first'); print('no such model')"]
    server = ServedProcess("side a", command, ready_path="/")
    with pytest.raises(ServedProcessError, match="side a ended: no such model"):
        server.wait_until_ready()
    server.close()


def test_one_that_says_nothing_is_given_up() -> None:
    server = ServedProcess("side a", [sys.executable, "-c", "input()"], ready_path="/")
    with pytest.raises(ServedProcessError, match=r"side a ended: EOFError|was not ready"):
        server.wait_until_ready(0.3)
    server.close()


def test_a_command_that_is_none_is_told() -> None:
    with pytest.raises(ServedProcessError, match=r"side a.*no-such-program"):
        ServedProcess("side a", ["no-such-program"], ready_path="/")
