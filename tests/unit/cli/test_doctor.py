"""What `leadline doctor` finds in the answers of services that work."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from leadline_cli.main import app
from leadline_client.errors import Forbidden, LeadlineError, QuotaExceeded, Unauthorized

PORTS: Final = {"broker": 1001, "controller": 2001, "coordinator": 3001}
HOUR_S: Final = 3600.0


def url(kind: str) -> str:
    return f"http://127.0.0.1:{PORTS[kind]}"


class AnsweringServices:
    """One broker, controller and coordinator. `clocks` are off by seconds, `reasons` are stated."""

    def __init__(self) -> None:
        self.clocks: dict[str, float] = {}
        self.reasons: dict[str, list[str]] = {}
        self.refusals: dict[str, LeadlineError] = {}
        """Why requests for a path are refused; a quota lets the second one through."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if (refusal := self.refusals.get(request.url.path)) is not None:
            if 0 < refusal.retry_after_s < HOUR_S:
                del self.refusals[request.url.path]
            return httpx.Response(refusal.code // 100, json=refusal.body())
        kind = next(kind for kind, port in PORTS.items() if port == request.url.port)
        date = formatdate(time() + self.clocks.get(kind, 0.0), usegmt=True)
        body = self._body(kind, urlsplit(str(request.url)).path)
        return httpx.Response(200 if body else 404, json=body, headers={"Date": date})

    def _body(self, kind: str, path: str) -> dict[str, Any]:
        bodies: dict[str, dict[str, Any]] = {
            "/readyz": {"ready": True, "reasons": self.reasons.get(kind, [])},
            "/v1/controller": {"active": True},
            "/v1/failed-brokers": {"brokers": []},
            "/v1/brokers": {"brokers": [{"id": 1, "release": "1", "misplaced": 0}]},
            "/v1/consult": {"coordinator": {"id": 1, "url": url("coordinator"), "epoch": 4}},
            "/v1/metadata": {
                "cluster_id": "c",
                "version": 1,
                "controller": {"id": 1, "url": url("controller"), "epoch": 2},
                "brokers": [{"id": 1, "url": url("broker"), "rack": None, "incarnation": 1}],
                "topics": {},
            },
        }
        return bodies.get(path, {})


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> AnsweringServices:
    answering = AnsweringServices()

    def http_client(*_: object, **__: object) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(answering))

    monkeypatch.setattr("leadline_cli.commands.doctor.secure_cluster.http_client", http_client)
    return answering


def findings(data_dir: Path) -> list[dict[str, Any]]:
    words = ["doctor", "--bootstrap", url("broker"), "--data-dir", str(data_dir), "--json"]
    ended = CliRunner().invoke(app, words)
    rows: list[dict[str, Any]] = json.loads(ended.stdout)["findings"]
    return rows


def wrong_findings(data_dir: Path) -> list[dict[str, Any]]:
    """Return what is wrong, but for what this machine lacks."""
    machine = ("no-java", "disk-nearly-full")
    return [row for row in findings(data_dir) if not row["ok"] and row["id"] not in machine]


def cluster_findings(data_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the findings about services, by their checks."""
    rows = findings(data_dir)
    found = {row["check"]: row for row in rows if any(kind in row["check"] for kind in PORTS)}
    assert found["active controller"]["ok"], found
    assert found["active coordinator"]["ok"], found
    return found


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("broker", "broker 1 is live and granted"),
        ("controller", "clock of controller 1"),
        ("coordinator", "clock of coordinator 1"),
    ],
)
def test_the_clock_of_every_kind_of_service_is_checked(
    kind: str, check: str, seconds: float, services: AnsweringServices, tmp_path: Path
) -> None:
    """A controller gives audit entries their times, and a coordinator deletes old groups."""
    services.clocks[kind] = seconds
    wrong = [row for row in cluster_findings(tmp_path).values() if not row["ok"]]
    assert [(row["check"], row["id"]) for row in wrong] == [(check, "clock-off")]
    assert wrong[0]["found"].startswith("its clock is 3")


def test_right_clocks_are_no_finding(services: AnsweringServices, tmp_path: Path) -> None:
    services.clocks["controller"] = 2.0
    assert all(row["ok"] for row in cluster_findings(tmp_path).values())


@pytest.mark.parametrize("kind", ["controller", "coordinator"])
def test_what_a_ready_service_reports_of_itself_is_a_finding(
    kind: str, services: AnsweringServices, tmp_path: Path
) -> None:
    """The doctor looked at the status of a coordinator only, which is 200 then."""
    services.reasons[kind] = ["its certificate has ended"]
    row = cluster_findings(tmp_path)[f"{kind} 1 reports no problem"]
    assert not row["ok"]
    assert row["id"] == f"{kind}-reports-problems"
    assert row["found"] == "its certificate has ended"


PATHS: Final = (
    "/v1/metadata",
    "/v1/controller",
    "/v1/failed-brokers",
    "/v1/brokers",
    "/v1/consult",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "refusal",
    [
        Unauthorized("the token has expired"),
        Forbidden("user:anna may not see the cluster"),
        QuotaExceeded("the quota is used up", quota="q", limit=1, retry_after_s=HOUR_S),
    ],
)
def test_a_refusal_is_named_and_nothing_else_is_taken_for_wrong(
    path: str, refusal: LeadlineError, services: AnsweringServices, tmp_path: Path
) -> None:
    """With an expired token no broker seemed to answer; a check that was refused was left out."""
    services.refusals[path] = refusal
    wrong = wrong_findings(tmp_path)
    assert [(row["id"], row["found"]) for row in wrong] == [("requests-refused", refusal.message)]


@pytest.mark.parametrize("path", PATHS)
def test_a_request_beyond_a_quota_is_sent_again(
    path: str, services: AnsweringServices, tmp_path: Path
) -> None:
    checks = [row["check"] for row in findings(tmp_path)]
    services.refusals[path] = QuotaExceeded("wait", quota="q", limit=1, retry_after_s=0.001)
    assert [row["check"] for row in findings(tmp_path)] == checks
    assert not services.refusals
