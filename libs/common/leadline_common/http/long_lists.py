"""Decoding a request of which one list is nearly all, a part of that list in each turn of the loop.

The metadata of 100,000 partitions is 4 MB. Decoding it at once takes 40 ms, for which a broker
would neither serve nor be seen to live.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

import msgspec

from leadline_common.slices import in_turns, parts

RequestT = TypeVar("RequestT")

AT_ONCE: Final = 256 * 1024
"""Bytes that are decoded in one turn: 3 ms."""


class LongListDecoder(Generic[RequestT]):
    """Decodes JSON into a msgspec struct, whose member `list_name` is the long list."""

    def __init__(self, request_type: type[RequestT], list_name: str) -> None:
        self._request_type = request_type
        self._list_name = list_name
        outline = msgspec.defstruct(
            f"{request_type.__name__}Outline",
            [(list_name, list[msgspec.Raw])],
            bases=(request_type,),
            frozen=True,
            kw_only=True,
        )
        self._decode_outline: Any = msgspec.json.Decoder(outline).decode
        (item,) = get_args(get_type_hints(request_type)[list_name])
        self._decode_item: Any = msgspec.json.Decoder(item).decode

    def is_long(self, body: bytes) -> bool:
        """Tell whether a body is too long to be decoded at once."""
        return len(body) > AT_ONCE

    async def decode(self, body: bytes) -> RequestT | None:
        """Return the request, or None if the body is invalid: decoded as a whole, it says where."""
        try:
            outline = self._decode_outline(body)
            items: list[Any] = []
            async for some in in_turns(parts(getattr(outline, self._list_name), _size, AT_ONCE)):
                items += [self._decode_item(one) for one in some]
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        members = {name: getattr(outline, name) for name in outline.__struct_fields__}
        return self._request_type(**{**members, self._list_name: items})


def _size(encoded: msgspec.Raw) -> int:
    return memoryview(encoded).nbytes
