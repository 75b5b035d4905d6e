"""The content types of bodies: JSON, in one of the charsets that clients of the API state."""

from __future__ import annotations

from typing import Final

from leadline_broker.api.v3.errors import CONTENT_TYPE, MALFORMED, V3Error
from leadline_common.rpc import JSON

LATIN: Final = "iso-8859-1"
_CHARSETS: Final = ("", "utf-8", "utf8", "us-ascii", LATIN)


def check_content_type(content_type: str) -> str:
    """Return the charset that a content type states, "" if it states none.

    Raises:
        V3Error: it is not that of JSON, or has a charset that no body may have.

    """
    media_type, _, rest = content_type.partition(";")
    if media_type.strip().lower() != JSON:
        raise V3Error(CONTENT_TYPE, f"the body must be {JSON}")
    _, _, charset = rest.lower().partition("charset=")
    charset = charset.strip().strip('"')
    if charset not in _CHARSETS:
        raise V3Error(MALFORMED, "the charset must be UTF-8 or ISO-8859-1")
    return charset
