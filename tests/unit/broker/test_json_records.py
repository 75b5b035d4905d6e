"""Records as JSON: what is refused before anything is appended."""

from __future__ import annotations

import pytest

from leadline_broker.api.json_records import JsonRecord, encodable_records
from leadline_client.errors import InvalidRequest


@pytest.mark.parametrize("text", ["?", "YQ", "YQ==\n", "YQ=é", "é"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"body.records\[0\].key: is not base64"):
        encodable_records([JsonRecord(value=None, key=text)], "base64")
