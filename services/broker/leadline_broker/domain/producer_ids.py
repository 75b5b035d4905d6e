"""Producer ids that belong to the user to whom they were allocated. Pure.

    bits 24 to 61   1 plus a number that is allocated once in the cluster
    bits 0 to 23    a keyed hash of the number and the owner, 0 without an owner

Batches, and so the ids in them, can be read by all who may read the topic. With the id of another
producer, a user could fence it, or let its next batch count as a repeated one. So a leader refuses
an id whose hash is not that of the sender; a follower takes what its leader has accepted. The hash
needs no state: any leader can check it, also after a failover.

Ids below 2^24 were allocated by releases without owners. They and those without an owner, which a
cluster without authentication allocates, are anybody's.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

KEY_BYTES: Final = 32
"""How many random bytes the cluster's key has."""
OWNER_BITS: Final = 24
MAX_NUMBER: Final = 2**38 - 2
_MASK: Final = (1 << OWNER_BITS) - 1


def owned_id(number: int, owner: str, key: bytes | None) -> int:
    """Return the id of an allocated number; without an owner or a key it is anybody's."""
    shifted = number + 1 << OWNER_BITS
    if not owner or key is None:
        return shifted
    return shifted | _hash(number, owner, key)


def number_of(producer_id: int) -> int:
    """Return the allocated number of an id."""
    if not is_from_this_scheme(producer_id):
        return producer_id
    return (producer_id >> OWNER_BITS) - 1


def is_from_this_scheme(producer_id: int) -> bool:
    """Tell whether an id has a number and a hash; earlier releases allocated plain numbers."""
    return producer_id > _MASK


def has_owner(producer_id: int) -> bool:
    """Tell whether an id belongs to somebody."""
    return is_from_this_scheme(producer_id) and producer_id & _MASK != 0


def belongs_to(producer_id: int, owner: str, key: bytes) -> bool:
    """Tell whether `owner` may use an id that has an owner."""
    return producer_id & _MASK == _hash(number_of(producer_id), owner, key)


def _hash(number: int, owner: str, key: bytes) -> int:
    """Return a number from 1 on: 0 stands for no owner."""
    message = number.to_bytes(8, "big") + owner.encode()
    digest = blake2b(message, key=key, digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % _MASK
