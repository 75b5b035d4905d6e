"""`leadline doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import typer
from rich.text import Text

from leadline_cli import secure_cluster
from leadline_cli.admin import AdminContext, admin_command, known_cluster
from leadline_cli.cluster_file import ClusterFile
from leadline_cli.disk_space import LITTLE_BYTES, free_bytes, has_little_space, own_disks
from leadline_cli.doctor_requests import Answer, DoctorRequests
from leadline_cli.embedded_zookeeper import server_mode
from leadline_cli.java_runtime import find_java
from leadline_cli.output import EXIT_REFUSED, print_line, print_table, reported
from leadline_cli.problems import Problem
from leadline_cli.readiness import why_not_ready
from leadline_cli.release_check import check_releases
from leadline_client.wire import NO_LEADER, Metadata

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
    if free > LITTLE_BYTES:
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
        requests = DoctorRequests(http)
        metadata = await _metadata(requests, urls)
        own = {broker.id: broker.url for broker in cluster.brokers} if cluster else {}
        live = {row.id: row.url for row in metadata.brokers.values()} if metadata else {}
        brokers = await asyncio.gather(
            *(
                _broker(requests, number, url, _start_again(number, number in own, data_dir))
                for number, url in sorted((own | live).items())
            )
        )
        if metadata is None:
            return [*(_refused(requests) or [_no_broker(urls)]), *brokers]
        controller = await _controller(requests, metadata)
        reports = await _reports(requests, metadata, cluster)
        down = await _down(requests, metadata)
        registered = await _registered(requests, metadata)
        coordinators = await _coordinators(requests, metadata, cluster)
    partitions = _check_partitions(metadata)
    checks = [*_releases(registered), *_log_directories(registered), *partitions]
    services = [*controller, *reports, *coordinators, *brokers, *down]
    return [*_refused(requests), *services, *checks]


def _no_broker(urls: list[str]) -> CheckResult:
    advice = "start the cluster (`leadline up`), or give the address of a live broker"
    return _failed(Problem.NO_BROKER_ANSWERS, "a broker answers", ", ".join(urls), advice)


def _refused(requests: DoctorRequests) -> list[CheckResult]:
    """Say which checks could not be made, if the user may not see everything."""
    if not requests.refusals:
        return []
    advice = "use the token of a viewer of the whole cluster; what was refused is not checked"
    check, found = "the doctor's requests", requests.reasons
    return [_failed(Problem.REQUESTS_REFUSED, check, found, advice)]


async def _registered(requests: DoctorRequests, metadata: Metadata) -> list[dict[str, Any]]:
    """Return what live brokers have registered; nothing without a controller that answers."""
    if metadata.controller is None:
        return []
    # If it does not answer, the check of the controller says so.
    return await requests.rows(f"{metadata.controller.url}/v1/brokers", "brokers")


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
            f"registered with another log directory, or without its logs or their ends: it cannot "
            f"lead {broker['misplaced']} partitions in whose ISR it is",
            "start the other brokers of these partitions, or this one with its former log "
            "directory; the broker's log says what a log lacks; as a last resort `leadline elect "
            "unclean`, which may lose records",
        )
        for broker in brokers
        if broker["misplaced"]
    ]


async def _metadata(requests: DoctorRequests, urls: list[str]) -> Metadata | None:
    for url in urls:
        answer = await requests.get(f"{url}/v1/metadata")
        if answer is not None and answer.ok:
            return Metadata.from_json(answer.body)
    return None


async def _controller(requests: DoctorRequests, metadata: Metadata) -> list[CheckResult]:
    active = metadata.controller
    if active is None:
        advice = "start a controller: without one no leaders are elected"
        return [_failed(Problem.NO_ACTIVE_CONTROLLER, "active controller", "none", advice)]
    answer = await requests.get(f"{active.url}/v1/controller")
    if answer is not None and answer.is_refused:
        return []
    found = f"controller {active.id} at {active.url}, epoch {active.epoch}"
    if answer is not None and answer.ok and answer.body.get("active") is True:
        return [_passed("active controller", found)]
    advice = "it does not answer as the active one: wait for an election, or start one"
    return [_failed(Problem.NO_ACTIVE_CONTROLLER, "active controller", found, advice)]


async def _reports(
    requests: DoctorRequests, metadata: Metadata, cluster: ClusterFile | None
) -> list[CheckResult]:
    """Return what is wrong with controllers that answer, such as an expired certificate."""
    urls = {one.id: one.url for one in cluster.controllers} if cluster else {}
    if metadata.controller is not None:
        urls[metadata.controller.id] = metadata.controller.url
    results = []
    for number, url in sorted(urls.items()):
        answer = await requests.get(f"{url}/readyz")
        if answer is None:
            continue  # the active one has a check of its own, and a standby may be down
        name, problem = f"controller {number}", Problem.CONTROLLER_REPORTS_PROBLEMS
        results += _what_is_wrong(name, problem, answer)
    return results


def _what_is_wrong(name: str, problem: Problem, answer: Answer) -> list[CheckResult]:
    """Return the problem that a service reports of itself, or else that its clock is off."""
    if not answer.ok or answer.body["reasons"]:
        reasons = why_not_ready(answer.response)
        return [_failed(problem, f"{name} reports no problem", reasons, _FOLLOW)]
    if off := _clock_off(answer):
        return [_failed(Problem.CLOCK_OFF, f"clock of {name}", off, _SYNCHRONISE)]
    return []


async def _down(requests: DoctorRequests, metadata: Metadata) -> list[CheckResult]:
    """Check for brokers that are down, healed or not; without a controller nothing is known."""
    if metadata.controller is None:
        return []
    answer = await requests.get(f"{metadata.controller.url}/v1/failed-brokers")
    if answer is None or not answer.ok:
        return []
    rows = [row for row in answer.body["brokers"] if row["state"] != "returned"]
    if not rows:
        return [_passed("brokers that are down", "none")]
    found = ", ".join(f"{row['id']} ({row['state']})" for row in rows)
    advice = (
        "start them again; if one will not return, `leadline brokers forget BROKER` once healed"
    )
    return [_failed(Problem.BROKER_FAILED, "brokers that are down", found, advice)]


async def _coordinators(
    requests: DoctorRequests, metadata: Metadata, cluster: ClusterFile | None
) -> list[CheckResult]:
    """Check the coordinator that the brokers name; a cluster may run without coordinators."""
    urls, refused = [broker.url for broker in metadata.brokers.values()], len(requests.refusals)
    named = [await requests.find_coordinator(url) for url in urls]
    active = max((one for one in named if one), key=lambda one: one["epoch"], default=None)
    if active is None and len(requests.refusals) > refused:
        return []
    if active is None:
        if cluster is not None and not cluster.coordinators:
            return []
        advice = "start a coordinator: without one consumer groups cannot rebalance or commit"
        return [_failed(Problem.NO_ACTIVE_COORDINATOR, "active coordinator", "none", advice)]
    name, found = f"coordinator {active['id']}", f"at {active['url']}, epoch {active['epoch']}"
    answer = await requests.get(f"{active['url']}/readyz")
    if answer is not None and answer.ok:
        problem = Problem.COORDINATOR_REPORTS_PROBLEMS
        passed = _passed("active coordinator", f"{name} {found}")
        return [passed, *_what_is_wrong(name, problem, answer)]
    reason = why_not_ready(answer.response) if answer is not None else "it does not answer"
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


async def _broker(requests: DoctorRequests, number: int, url: str, start_again: str) -> CheckResult:
    check = f"broker {number} is live and granted"
    answer = await requests.get(f"{url}/readyz")
    if answer is None:
        advice = f"{start_again}; its log may say why it ended"
        found = f"{url} does not answer"
        return _failed(Problem.BROKER_DOES_NOT_ANSWER, check, found, advice)
    reasons = why_not_ready(answer.response)
    if not answer.ok:
        advice = f"wait a moment; if it stays so, read its log, or {start_again}"
        return _failed(Problem.BROKER_NOT_READY, check, reasons, advice)
    if answer.body["reasons"]:
        return _failed(Problem.BROKER_REPORTS_PROBLEMS, check, reasons, _FOLLOW)
    if off := _clock_off(answer):
        return _failed(Problem.CLOCK_OFF, check, off, _SYNCHRONISE)
    return _passed(check, url)


def _clock_off(answer: Answer) -> str:
    """Say how far a service's clock is off, if it is off too far."""
    off_s = answer.clock_off_s
    return f"its clock is {off_s:.0f} s off" if off_s > _CLOCK_SKEW_S else ""
