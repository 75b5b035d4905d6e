"""Secrets of members: who holds one acts as the member. Member ids and generations are public.

Only hashes are kept and recorded. A secret of a member is random, with 256 bits, so that a plain
hash of it reveals nothing. An instance secret is chosen by the operator, who chooses a random one.
"""

from __future__ import annotations

import hashlib
import hmac

from leadline_client.errors import WrongMemberSecret
from leadline_coordinator.domain.members import GroupMember


def hash_of(secret: str | None) -> str:
    """Return what is recorded of a secret; "" if there is none."""
    if not secret:
        return ""
    # A stranger may send text that cannot be encoded, such as the lone surrogates of JSON.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_proof(secret: str | None, recorded: str) -> bool:
    """Tell whether a secret is the one whose hash is recorded; takes the same time for any."""
    return bool(recorded) and hmac.compare_digest(hash_of(secret), recorded)


def check_member_secret(member: GroupMember, secret: str | None) -> None:
    """Refuse a request in a member's name from anyone but the member.

    Raises:
        WrongMemberSecret: the secret is missing or wrong.

    """
    if not is_proof(secret, member.credentials.secret_hash):
        raise WrongMemberSecret(f"secret: missing, or not that of member {member.id!r}")


def check_instance_secret(member: GroupMember, secret: str | None) -> None:
    """Refuse to replace a static member without its instance secret.

    Raises:
        WrongMemberSecret: the secret is missing or wrong.

    """
    if not is_proof(secret, member.credentials.instance_hash):
        raise WrongMemberSecret(
            f"instance_secret: missing, or not that of the member with the instance id "
            f"{member.subscription.instance_id!r}"
        )
