"""`leadline doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import typer
from rich.text import Text

from leadline_cli import secure_cluster
from leadline_cli.admin import AdminContext, admin_command, known_cluster
from leadline_cli.cluster_file import ClusterFile
from leadline_cli.disk_space import free_bytes, has_little_space, own_disks
from leadline_cli.embedded_zookeeper import server_mode
from leadline_cli.java_runtime import find_java
from leadline_cli.output import EXIT_REFUSED, print_line, print_table, reported
from leadline_cli.problems import Problem
from leadline_cli.readiness import find_coordinator, why_not_ready
from leadline_cli.release_check import check_releases
from leadline_client.wire import NO_LEADER, Metadata

_MINIMUM_FREE_BYTES: Final = 1 << 30
_FOLLOW = "do what it says; its log may say more"
_FREE_SPACE = (
    "free some space: a broker with a full disk takes no records, but keeps its leaders, and "
    "ZooKeeper ends"
)
_CLOCK_SKEW_S: Final = 5.0
_SYNCHRONISE = "synchronise the clocks"
_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; with nothing to do, there is no advice and no problem."""

    check: str
    ok: bool
    found: str
    advice: str = ""
    problem: Problem | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows; `id` and `runbook` are those of the problem, or empty."""
        return {
            "id": self.problem or "",
            "check": self.check,
            "ok": self.ok,
            "found": self.found,
            "advice": self.advice,
            "runbook": self.problem.runbook if self.problem else "",
        }


def _passed(check: str, found: str) -> CheckResult:
    return CheckResult(check, ok=True, found=found)


def _failed(problem: Problem, check: str, found: str, advice: str) -> CheckResult:
    return CheckResult(check, ok=False, found=found, advice=advice, problem=problem)


@admin_command
def doctor(admin: AdminContext) -> None:
    """Check this machine and the cluster; exit with 1 if something is wrong."""
    cluster = None if admin.bootstrap else known_cluster(admin.data_dir)
    results = [_python(), _java(), _disk(admin.data_dir), *_own_disks(admin.data_dir)]
    if cluster is not None:
        results += _zookeeper(cluster)
    if cluster is None and not admin.bootstrap:
        advice = "start one with `leadline up`, or name one with --bootstrap or --data-dir"
        found = f"none in {admin.data_dir}"
        results.append(_failed(Problem.NO_CLUSTER_FOUND, "a cluster", found, advice))
    else:
        with reported(as_json=admin.as_json):
            results += asyncio.run(_cluster_checks(admin, cluster))
    ok = all(result.ok for result in results)
    document = {"ok": ok, "findings": [result.to_json() for result in results]}
    admin.show(document, lambda _: _print_results(results))
    if not ok:
        raise typer.Exit(EXIT_REFUSED)


def _check_partitions(metadata: Metadata) -> list[CheckResult]:
    """Check for partitions without a leader, and for under-replicated ones."""
    rows = [(name, row) for name, topic in metadata.topics.items() for row in topic.partitions]
    offline = [f"{name}-{row.partition}" for name, row in rows if row.leader == NO_LEADER]
    under = [f"{name}-{row.partition}" for name, row in rows if len(row.isr) < len(row.replicas)]
    return [
        _partitions(
            Problem.OFFLINE_PARTITIONS,
            "partitions with a leader",
            len(rows),
            offline,
            "start the brokers of their ISR (`leadline topics describe`); as a last resort "
            "`leadline elect unclean`, which may lose records",
        ),
        _partitions(
            Problem.UNDER_REPLICATED_PARTITIONS,
            "fully replicated partitions",
            len(rows),
            under,
            "start the missing brokers, or wait for them to catch up",
        ),
    ]


def _partitions(
    problem: Problem, check: str, count: int, wrong: list[str], advice: str
) -> CheckResult:
    """Say how many of `count` partitions pass, and name those that do not."""
    found = f"{count - len(wrong)} of {count}{_some(wrong)}"
    return _failed(problem, check, found, advice) if wrong else _passed(check, found)


def _print_results(results: list[CheckResult]) -> None:
    rows = [(_mark(result), result.check, result.found) for result in results]
    print_table("Doctor", ("", "check", "found"), rows)
    for result in results:
        if result.advice:
            # Not in the table, whose lines break on a terminal: it may be a command to copy.
            see = f" ({result.problem.runbook})" if result.problem else ""
            print_line(f"{result.check}: {result.advice}{see}")


def _mark(result: CheckResult) -> Text:
    return Text("ok", "green") if result.ok else Text("wrong", "red")


def _some(names: list[str]) -> str:
    return f" (not {', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return _passed("Python 3.11 or newer", version)  # An older one does not get this far.


def _java() -> CheckResult:
    check = "Java for the embedded ZooKeeper"
    try:
        return _passed(check, str(find_java()))
    except (OSError, RuntimeError) as problem:
        advice = "run `make setup`, which installs one, or set JAVA_HOME to a JDK 17 or newer"
        return _failed(Problem.NO_JAVA, check, str(problem), advice)


def _disk(data_dir: Path) -> CheckResult:
    free, directory = free_bytes(data_dir)
    check, found = "free disk space", f"{free / (1 << 30):.1f} GiB in {directory}"
    if free > _MINIMUM_FREE_BYTES:
        return _passed(check, found)
    return _failed(Problem.DISK_NEARLY_FULL, check, found, _FREE_SPACE)


def _own_disks(data_dir: Path) -> Iterable[CheckResult]:
    """Check the disks of services that have one of their own, such as that of ZooKeeper's data."""
    for directory in own_disks(data_dir):
        check, (free, _) = f"free disk space of {directory.name}", free_bytes(directory)
        found = f"{free / (1 << 20):.1f} MiB in {directory}"
        if has_little_space(directory):
            yield _failed(Problem.DISK_NEARLY_FULL, check, found, _FREE_SPACE)
        else:
            yield _passed(check, found)


def _zookeeper(cluster: ClusterFile) -> Iterable[CheckResult]:
    for server in cluster.zookeeper_servers:
        check, mode = f"ZooKeeper {server.id}", server_mode(urlsplit(server.url).port or 0)
        again = "run `leadline up` again, or only this command: " + " ".join(server.argv)
        if mode is None:
            yield _failed(Problem.ZOOKEEPER_DOWN, check, "does not serve", again)
        else:
            yield _passed(check, mode)


async def _cluster_checks(admin: AdminContext, cluster: ClusterFile | None) -> list[CheckResult]:
    urls, data_dir = admin.urls, admin.data_dir
    async with secure_cluster.http_client(admin.security, timeout_s=_TIMEOUT_S) as http:
        metadata = await _metadata(http, urls)
        own = {broker.id: broker.url for broker in cluster.brokers} if cluster else {}
        live = {row.id: row.url for row in metadata.brokers.values()} if metadata else {}
        brokers = await asyncio.gather(
            *(
                _broker(http, number, url, _start_again(number, number in own, data_dir))
                for number, url in sorted((own | live).items())
            )
        )
        if metadata is None:
            advice = "start the cluster (`leadline up`), or give the address of a live broker"
            none = _failed(Problem.NO_BROKER_ANSWERS, "a broker answers", ", ".join(urls), advice)
            return [none, *brokers]
        controller = await _controller(http, metadata)
        reports = await _reports(http, metadata, cluster)
        down = await _down(http, metadata)
        registered = await _registered(http, metadata)
        coordinators = await _coordinators(http, metadata, cluster)
    partitions = _check_partitions(metadata)
    checks = [*_releases(registered), *_log_directories(registered), *partitions]
    return [controller, *reports, *coordinators, *brokers, *down, *checks]


async def _registered(http: httpx.AsyncClient, metadata: Metadata) -> list[dict[str, Any]]:
    """Return what live brokers have registered; nothing without a controller that answers."""
    if metadata.controller is None:
        return []
    try:
        answer = await http.get(f"{metadata.controller.url}/v1/brokers")
    except httpx.HTTPError:
        return []  # the check of the controller says so
    rows: list[dict[str, Any]] = []
    if answer.status_code == httpx.codes.OK:
        rows = answer.json()["brokers"]
    return rows


def _releases(brokers: list[dict[str, Any]]) -> list[CheckResult]:
    """Name the releases of the brokers; several are no fault if they can work together."""
    if not brokers:
        return []
    ok, found, advice = check_releases(brokers)
    if not ok:
        return [_failed(Problem.INCOMPATIBLE_RELEASES, "releases", found, advice)]
    several = Problem.TWO_RELEASES if advice else None
    return [CheckResult("releases", ok=True, found=found, advice=advice, problem=several)]


def _log_directories(brokers: list[dict[str, Any]]) -> list[CheckResult]:
    """Check that the brokers have the log directories with which they became in sync."""
    return [
        _failed(
            Problem.LOG_DIRECTORY_REPLACED,
            f"log directory of broker {broker['id']}",
            f"registered with another log directory, or without its logs: it cannot lead "
            f"{broker['misplaced']} partitions in whose ISR it is",
            "start the other brokers of these partitions, or this one with its former log "
            "directory; as a last resort `leadline elect unclean`, which may lose records",
        )
        for broker in brokers
        if broker["misplaced"]
    ]


async def _metadata(http: httpx.AsyncClient, urls: list[str]) -> Metadata | None:
    for url in urls:
        try:
            answer = await http.get(f"{url}/v1/metadata")
        except httpx.HTTPError:
            continue
        if answer.status_code == httpx.codes.OK:
            return Metadata.from_json(answer.json())
    return None


async def _controller(http: httpx.AsyncClient, metadata: Metadata) -> CheckResult:
    active = metadata.controller
    if active is None:
        advice = "start a controller: without one no leaders are elected"
        return _failed(Problem.NO_ACTIVE_CONTROLLER, "active controller", "none", advice)
    try:
        answer = await http.get(f"{active.url}/v1/controller")
        ok = answer.status_code == httpx.codes.OK and answer.json().get("active") is True
    except httpx.HTTPError:
        ok = False
    found = f"controller {active.id} at {active.url}, epoch {active.epoch}"
    if ok:
        return _passed("active controller", found)
    advice = "it does not answer as the active one: wait for an election, or start one"
    return _failed(Problem.NO_ACTIVE_CONTROLLER, "active controller", found, advice)


async def _reports(
    http: httpx.AsyncClient, metadata: Metadata, cluster: ClusterFile | None
) -> list[CheckResult]:
    """Return what is wrong with controllers that answer, such as an expired certificate."""
    urls = {one.id: one.url for one in cluster.controllers} if cluster else {}
    if metadata.controller is not None:
        urls[metadata.controller.id] = metadata.controller.url
    results = []
    for number, url in sorted(urls.items()):
        before = time.time()
        try:
            answer = await http.get(f"{url}/readyz")
        except httpx.HTTPError:
            continue  # the active one has a check of its own, and a standby may be down
        name, problem = f"controller {number}", Problem.CONTROLLER_REPORTS_PROBLEMS
        results += _what_is_wrong(name, problem, answer, before)
    return results


def _what_is_wrong(
    name: str, problem: Problem, answer: httpx.Response, before: float
) -> list[CheckResult]:
    """Return the problem that a service reports of itself, or else that its clock is off."""
    if answer.status_code != httpx.codes.OK or answer.json()["reasons"]:
        return [_failed(problem, f"{name} reports no problem", why_not_ready(answer), _FOLLOW)]
    if off := _clock_off(answer, before):
        return [_failed(Problem.CLOCK_OFF, f"clock of {name}", off, _SYNCHRONISE)]
    return []


async def _down(http: httpx.AsyncClient, metadata: Metadata) -> list[CheckResult]:
    """Check for brokers that are down, healed or not; without a controller nothing is known."""
    if metadata.controller is None:
        return []
    try:
        answer = await http.get(f"{metadata.controller.url}/v1/failed-brokers")
    except httpx.HTTPError:
        return []
    if answer.status_code != httpx.codes.OK:
        return []
    rows = [row for row in answer.json()["brokers"] if row["state"] != "returned"]
    if not rows:
        return [_passed("brokers that are down", "none")]
    found = ", ".join(f"{row['id']} ({row['state']})" for row in rows)
    advice = (
        "start them again; if one will not return, `leadline brokers forget BROKER` once healed"
    )
    return [_failed(Problem.BROKER_FAILED, "brokers that are down", found, advice)]


async def _coordinators(
    http: httpx.AsyncClient, metadata: Metadata, cluster: ClusterFile | None
) -> list[CheckResult]:
    """Check the coordinator that the brokers name; a cluster may run without coordinators."""
    named = [await find_coordinator(http, broker.url) for broker in metadata.brokers.values()]
    active = max((one for one in named if one), key=lambda one: one["epoch"], default=None)
    if active is None:
        if cluster is not None and not cluster.coordinators:
            return []
        advice = "start a coordinator: without one consumer groups cannot rebalance or commit"
        return [_failed(Problem.NO_ACTIVE_COORDINATOR, "active coordinator", "none", advice)]
    name, found = f"coordinator {active['id']}", f"at {active['url']}, epoch {active['epoch']}"
    before, answer = time.time(), None
    with suppress(httpx.HTTPError):
        answer = await http.get(f"{active['url']}/readyz")
    if answer is not None and answer.status_code == httpx.codes.OK:
        problem = Problem.COORDINATOR_REPORTS_PROBLEMS
        passed = _passed("active coordinator", f"{name} {found}")
        return [passed, *_what_is_wrong(name, problem, answer, before)]
    reason = why_not_ready(answer) if answer is not None else "it does not answer"
    advice = f"{reason}: wait for the next election, or start one"
    no_active = Problem.NO_ACTIVE_COORDINATOR
    return [_failed(no_active, "active coordinator", f"{name} {found}", advice)]


def _start_again(broker: int, own: bool, data_dir: Path) -> str:
    """Say how to start a broker that does not answer."""
    if not own:
        return "start it again"
    return (
        f"run `leadline brokers restart {broker} --data-dir {data_dir}` (`leadline up --restart` "
        "does so itself)"
    )


async def _broker(http: httpx.AsyncClient, number: int, url: str, start_again: str) -> CheckResult:
    check = f"broker {number} is live and granted"
    before = time.time()
    try:
        answer = await http.get(f"{url}/readyz")
    except httpx.HTTPError:
        advice = f"{start_again}; its log may say why it ended"
        found = f"{url} does not answer"
        return _failed(Problem.BROKER_DOES_NOT_ANSWER, check, found, advice)
    if answer.status_code != httpx.codes.OK:
        advice = f"wait a moment; if it stays so, read its log, or {start_again}"
        return _failed(Problem.BROKER_NOT_READY, check, why_not_ready(answer), advice)
    if answer.json()["reasons"]:
        return _failed(Problem.BROKER_REPORTS_PROBLEMS, check, why_not_ready(answer), _FOLLOW)
    if off := _clock_off(answer, before):
        return _failed(Problem.CLOCK_OFF, check, off, _SYNCHRONISE)
    return _passed(check, url)


def _clock_off(answer: httpx.Response, before: float) -> str:
    """Say how far a service's clock is off, as its answer to a request of `before` states."""
    stated = answer.headers.get("date")
    skew = abs(parsedate_to_datetime(stated).timestamp() - before) if stated else 0.0
    return f"its clock is {skew:.0f} s off" if skew > _CLOCK_SKEW_S else ""
