"""A scripted server over a folder of blocks, as a program: ``cache_server.py --port N …``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from support.scripted import tiny_engine

from foreword.config.server import ServerConfig
from foreword.core.step import StepPlan
from foreword.engine.async_engine import AsyncEngine
from foreword.server.serve import serve
from foreword.tiers import store
from foreword.tiers.disk import DiskTier


def slow_step(plan: StepPlan) -> None:
    """Take so long that reading blocks is worth it."""
    time.sleep(plan.num_tokens * 2e-4)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--limit-bytes", type=int, required=True)
    chosen = options.parse_args()
    store.MAX_LOSS = 1000.0  # however busy the machine is, a block that is there is waited for
    engine = tiny_engine(tiers=[DiskTier(chosen.folder, chosen.limit_bytes)], on_step=slow_step)
    serve(AsyncEngine(engine), ServerConfig(port=chosen.port))
