"""The spans of a command: one process that does one thing, traced as the environment says."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from leadline_common.tracing.sdk import shut_down

EXPORT_S: Final = 1.0
"""How long a command waits for the collector at most, once, at its end."""
_NAME_VARIABLE: Final = "OTEL_SERVICE_NAME"


@contextmanager
def traced_command(name: str) -> Iterator[None]:
    """Record the block as a span called `name`, the parent of those of the client library.

    The standard variables (`OTEL_*`) say where the spans are sent, and which are recorded.
    """
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    service = {"service.name": os.environ.get(_NAME_VARIABLE) or "leadline"}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=EXPORT_S)))
    trace.set_tracer_provider(provider)
    try:
        with trace.get_tracer("leadline-cli").start_as_current_span(name):
            yield
    finally:
        shut_down(provider)
