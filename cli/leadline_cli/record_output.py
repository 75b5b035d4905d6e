"""How `leadline consume` prints records: values as they are, or one JSON object to the line."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from typing import Any

from leadline_cli.lost_output import written
from leadline_client.fetching import ConsumedRecord


def print_record(consumed: ConsumedRecord, *, as_json: bool, headers: bool) -> None:
    """Print a record at once; `headers`: before the value, as `name=value,name=value` and a tab.

    Raises:
        BrokenPipeError: the reader of the pipe has gone.
        OutputLost: standard output cannot be written for another reason.

    """
    if as_json:
        line = json.dumps(_document(consumed)).encode()
    else:
        line = (_header_prefix(consumed) if headers else b"") + (consumed.value or b"")
    with written(but=BrokenPipeError):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def _document(consumed: ConsumedRecord) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": consumed.offset,
        "timestamp": consumed.timestamp,
        **_text_or_base64("key", consumed.key),
        **_text_or_base64("value", consumed.value),
    }
    if consumed.headers:
        document["headers"] = [
            {"name": name, **_text_or_base64("value", value)} for name, value in consumed.headers
        ]
    return document


def _header_prefix(consumed: ConsumedRecord) -> bytes:
    pairs = (name.encode() + b"=" + (value or b"") for name, value in consumed.headers)
    return b",".join(pairs) + b"\t"


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text, or as base64 under another name if they are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
