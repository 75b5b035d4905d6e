"""Tracing of commands by OpenTelemetry, if its standard variables name a collector."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Final

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_DISABLED: Final = "OTEL_SDK_DISABLED"
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_SDK: Final = ("opentelemetry.sdk", "opentelemetry.exporter")


def command_span(
    name: str, environment: Mapping[str, str] = os.environ
) -> AbstractContextManager[None]:
    """Return the span of a command; nothing is imported unless the environment asks for it.

    The variables may be there for other programs, so it is no error if the SDK is missing.
    """
    named = any(environment.get(variable) for variable in _ENDPOINTS)
    disabled = environment.get(_DISABLED, "").lower() == "true"
    wanted = environment.get(_EXPORTER, "otlp") == "otlp"
    if not named or disabled or not wanted or not _sdk_installed():
        return nullcontext()
    commands = import_module("leadline_common.tracing.commands")
    span: AbstractContextManager[None] = commands.traced_command(f"leadline {name}")
    return span


def _sdk_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _SDK)
    except ModuleNotFoundError:
        return False
