"""Who a certificate says that it belongs to, and what it may speak as."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import Forbidden
from leadline_common.identity import KINDS, ServiceIdentity

identities = st.builds(
    ServiceIdentity, st.sampled_from(KINDS), st.integers(min_value=0, max_value=2**31 - 1)
)


def certificate(*names: tuple[str, str]) -> dict[str, tuple[tuple[str, str], ...]]:
    return {"subjectAltName": names}


@given(identities)
def test_a_certificate_names_its_service(identity: ServiceIdentity) -> None:
    names = certificate(("DNS", identity.host_name), ("URI", identity.uri))
    assert ServiceIdentity.of_certificate(names) == identity


@pytest.mark.parametrize(
    "names",
    [
        certificate(),
        {},
        certificate(("DNS", "broker-3.leadline.internal")),
        certificate(("URI", "leadline://broker/3"), ("URI", "leadline://broker/4")),
        certificate(("URI", "leadline://broker/03")),
        certificate(("URI", "leadline://broker/-3")),
        certificate(("URI", "leadline://broker/3/")),
        certificate(("URI", "leadline://broker/3\n")),
        certificate(("URI", "leadline://broker/٣")),
        certificate(("URI", "leadline://operator/3")),
        certificate(("URI", "https://broker/3")),
        certificate(("DNS", "leadline://broker/3")),
    ],
)
def test_any_other_certificate_names_no_service(names: dict[str, object]) -> None:
    assert ServiceIdentity.of_certificate(names) is None


@given(identities, identities)
def test_a_service_speaks_as_itself_only(one: ServiceIdentity, other: ServiceIdentity) -> None:
    one.require(one)
    if one != other:
        with pytest.raises(Forbidden):
            one.require(other)
