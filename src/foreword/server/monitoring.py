"""Metrics, recent statistics, the dashboard and spans: what watches requests."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import Response

from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.errors import ConfigError
from foreword.metrics.observer import RequestObserver
from foreword.metrics.prometheus import CONTENT_TYPE, ServingMetrics
from foreword.metrics.rolling import RollingStats
from foreword.server import dashboard, stats
from foreword.server.readings import engine_readings
from foreword.server.service import Service

if TYPE_CHECKING:
    from foreword.metrics.tracing import RequestTracer

_OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Monitoring:
    """The observers that a configuration asks for, and the endpoints that show what they saw.

    Attributes:
        observers: to be told of every request.

    Raises:
        ConfigError: spans are wanted, and the extra ``otel`` is not installed.
    """

    def __init__(self, engine: AsyncEngine, config: ServerConfig, model_name: str) -> None:
        self.observers: list[RequestObserver] = []
        self._shown = None
        if config.metrics:
            metrics = ServingMetrics(
                model_name, lambda: engine_readings(engine.stats(), engine.tier_names)
            )
            rolling = RollingStats()
            engine.on_step = metrics.stepped
            self.observers += (metrics, rolling)
            self._shown = (metrics, rolling)
        self._tracer = None
        endpoint = config.otlp_traces_endpoint
        if endpoint is not None or any(os.environ.get(name) for name in _OTLP_VARIABLES):
            self._tracer = _tracer(engine, endpoint)
            self.observers.append(self._tracer)

    def error(self, status: int) -> None:
        """Tell the observers of an answer that is an error."""
        for observer in self.observers:
            observer.error(status)

    def add_routes(self, app: FastAPI, service: Service) -> None:
        """Add the endpoints to ``app``; none where metrics are off."""
        if self._shown is None:
            return
        metrics, rolling = self._shown

        @app.get("/metrics", tags=["operations"])
        async def scrape() -> Response:
            """Return counters, gauges and histograms for Prometheus."""
            return Response(metrics.render(), media_type=CONTENT_TYPE)

        stats.add_routes(app, service, rolling)
        dashboard.add_routes(app)

    async def shutdown(self) -> None:
        """Send the spans that have not been sent."""
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.shutdown)


def _tracer(engine: AsyncEngine, endpoint: str | None) -> RequestTracer:
    try:
        from foreword.metrics.tracing import RequestTracer
    except ImportError as error:
        raise ConfigError(
            "otlp_traces_endpoint",
            f"needs OpenTelemetry: pip install 'foreword[otel]' ({error})",
        ) from error
    return RequestTracer(endpoint, engine.steps)
