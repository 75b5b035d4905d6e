"""Switching tracing on for a process, and off again at its end.

Only `tracing.sdk` imports the OpenTelemetry SDK, and only if spans are to be sent somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from leadline_common.settings.fields import ServiceSettings
from leadline_common.settings.load import SettingsError
from leadline_common.tracing.spans import use_tracer

EXTRA: Final = "pip install 'leadline-common[tracing]'"
TRACES_PATH: Final = "/v1/traces"
_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@contextmanager
def traced(settings: ServiceSettings, kind: str, service_id: int) -> Iterator[None]:
    """Trace this process within the block, if its settings name a collector.

    At the end, spans that are left are sent, for at most `sdk.FLUSH_S` seconds.

    Raises:
        SettingsError: the collector's URL is none, or the extra is not installed.

    """
    if not settings.tracing_otlp_endpoint:
        yield
        return
    url = traces_url(settings.tracing_otlp_endpoint)
    if not sdk_installed():
        raise SettingsError(f"tracing.otlp.endpoint needs an extra: {EXTRA}")
    sdk: Any = import_module("leadline_common.tracing.sdk")
    provider = sdk.provider_for(url, settings.tracing_sample_ratio, kind, service_id)
    use_tracer(sdk.tracer_of(provider, settings.tracing_sample_ratio))
    try:
        yield
    finally:
        use_tracer(None)
        sdk.shut_down(provider)


def sdk_installed() -> bool:
    """Tell whether the packages of the extra are here."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # a parent package of one
        return False


def traces_url(endpoint: str) -> str:
    """Return where to send spans: the collector's own path if the endpoint has none.

    Raises:
        SettingsError: this is no URL with http or https.

    """
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.query or parts.fragment:
        raise SettingsError(
            "tracing.otlp.endpoint: must be a URL such as http://127.0.0.1:4318, without user and "
            f"query, not {endpoint!r}"
        )
    return endpoint if parts.path.strip("/") else endpoint.rstrip("/") + TRACES_PATH
