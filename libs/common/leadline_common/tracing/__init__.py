"""Spans of requests and events for OpenTelemetry, which is optional (docs/tracing.md)."""
