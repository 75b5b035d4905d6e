"""JSON that anybody may have written is a value or one kind of error."""

from __future__ import annotations

import msgspec
import pytest

from leadline_common import consumer_znodes, znodes
from leadline_common.consumer_znodes import GroupNode
from leadline_common.untrusted_json import decode_json

NOT_JSON = [b"", b"{", b'"\xff"', b"[" * 100_000, b"\xff\xfe"]


@pytest.mark.parametrize("data", NOT_JSON)
def test_what_is_not_json_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_json(data)


@pytest.mark.parametrize("data", [b'{"version": "\xff"}', b'{"a": ' + b"[" * 100_000])
def test_a_damaged_node_is_an_error_that_its_readers_expect(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        znodes.decode_state(data)
    with pytest.raises(msgspec.MsgspecError):
        znodes.decode_audit(data)
    with pytest.raises(msgspec.MsgspecError):
        consumer_znodes.decode(data, GroupNode)


def test_settings_in_a_node_must_be_an_object() -> None:
    with pytest.raises(msgspec.ValidationError, match="configs"):
        znodes.decode_configs(b'{"configs": [1]}')
