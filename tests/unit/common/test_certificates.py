"""Certificates that have expired, end soon, begin later, or are those of another service."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from leadline_cli.credentials import Credentials, UnusableAuthority
from leadline_common.http.app import create_app
from leadline_common.http.internal_listener import InternalListener, bind_internal
from leadline_common.http.listeners import bind
from leadline_common.http.tls import InternalTls
from leadline_common.identity import ServiceIdentity, UnusableCredentials
from leadline_common.metrics import Metrics
from leadline_common.settings import ServiceSettings
from tests.support.services.identities import issue_in_the_past, load_tls
from tests.unit.common.http_app import anybody

BROKER = ServiceIdentity("broker", 1)
TEN_YEARS = 3_650


def start(credentials: Credentials, service: ServiceIdentity = BROKER) -> None:
    """Bind the internal listener as a starting service does."""
    settings = ServiceSettings(
        internal_certificate_file=str(credentials.certificate_of(BROKER)),
        internal_ca_file=str(credentials.authority),
    )
    bind_internal(settings, service).socket.close()


@pytest.mark.parametrize(
    ("days_ago", "of_authority", "says"),
    [
        (TEN_YEARS + 1, False, r"broker-1\.pem expired at 20.* UTC: remove it, .*create"),
        (TEN_YEARS + 1, True, r"internal-ca\.pem expired at .*certificates that it signed.*all"),
        (-2, False, r"broker-1\.pem is valid from 20.* on: check this machine's clock"),
        (-2, True, r"internal-ca\.pem is valid from"),
    ],
    ids=["expired", "expired authority", "not yet valid", "authority not yet valid"],
)
def test_a_service_does_not_start_with_what_no_other_accepts(
    tmp_path: Path, days_ago: int, of_authority: bool, says: str
) -> None:
    credentials = Credentials(tmp_path)
    issue_in_the_past(credentials, BROKER, days_ago, authority=of_authority)
    with pytest.raises(UnusableCredentials, match=says):
        start(credentials)


def test_a_service_does_not_start_with_the_certificate_of_another(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    start(credentials)
    with pytest.raises(UnusableCredentials, match=r"of broker 1, and this is broker 2"):
        start(credentials, ServiceIdentity("broker", 2))


def test_a_service_does_not_start_with_the_certificate_of_another_cluster(tmp_path: Path) -> None:
    ours, theirs = Credentials(tmp_path / "ours"), Credentials(tmp_path / "theirs")
    ours.create([BROKER])
    theirs.create([BROKER])
    ours.certificate_of(BROKER).write_bytes(theirs.certificate_of(BROKER).read_bytes())
    with pytest.raises(UnusableCredentials, match=r"broker-1\.pem .*verify"):
        start(ours)


@pytest.mark.parametrize("of_authority", [False, True])
@pytest.mark.parametrize(
    ("days_ago", "status", "state", "says"),
    [
        (TEN_YEARS - 31, 200, "ready", ""),
        (TEN_YEARS - 29, 200, "degraded", "expires at"),
        (TEN_YEARS + 1, 503, "not_ready", "accept no new connection"),
    ],
    ids=["valid", "ends soon", "expired"],
)
async def test_a_running_service_reports_the_end_of_its_certificate(
    tmp_path: Path, of_authority: bool, days_ago: int, status: int, state: str, says: str
) -> None:
    credentials = Credentials(tmp_path)
    issue_in_the_past(credentials, BROKER, days_ago, authority=of_authority)
    listener = bind("127.0.0.1", 0)
    listener.socket.close()
    internal = InternalListener(listener, load_tls(credentials, BROKER))
    app = create_app(
        title="t", version="1", description="", metrics=Metrics(process=False), need_of=anybody
    )
    internal.report_to(app)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        ready, metrics = await http.get("/readyz"), await http.get("/metrics")

    found = ready.json()
    assert (ready.status_code, found["state"]) == (status, state)
    assert says in "".join(found["reasons"])
    name = "leadline_internal_certificate_not_after_timestamp_seconds"
    line = next(line for line in metrics.text.splitlines() if line.startswith(name))
    ends_s = time.time() + (TEN_YEARS - days_ago) * 86_400
    assert float(line.split()[1]) == pytest.approx(ends_s, abs=3_600)


def test_an_expired_authority_signs_nothing(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    issue_in_the_past(credentials, BROKER, TEN_YEARS + 1, authority=True)
    with pytest.raises(UnusableAuthority, match="expired at"):
        credentials.create([ServiceIdentity("broker", 2)])
    assert not credentials.certificate_of(ServiceIdentity("broker", 2)).exists()


def test_the_chain_is_that_of_the_files(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    issue_in_the_past(credentials, BROKER, 100)
    tls = InternalTls.load(credentials.certificate_of(BROKER), credentials.authority)
    assert tls.chain.service == BROKER
    assert tls.chain.own.ends_s < tls.chain.authority.ends_s
    assert tls.chain.ends_s == tls.chain.own.ends_s
