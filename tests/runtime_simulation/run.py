"""One seed from start to verdict, and the search for a small plan that still fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from leadline_client.wire import TopicPartition
from tests.runtime_simulation import cluster_clocks, commits, forwarding, group_records
from tests.runtime_simulation.administration import MOST_PARTITIONS, Administration, GroupTopic
from tests.runtime_simulation.checks import (
    ADMINISTRATION,
    GROUP,
    LIVENESS,
    Violation,
    check_acknowledged,
    check_everything,
    committed,
    moved_back,
    of_other_topics,
    require,
)
from tests.runtime_simulation.cluster import GROUP_TOPIC, REBUILT, TOPICS, Cluster, files
from tests.runtime_simulation.drawing import make_plan
from tests.runtime_simulation.event_loop import OWNER, OutOfSteps
from tests.runtime_simulation.faults import Faults
from tests.runtime_simulation.flaws import in_force
from tests.runtime_simulation.leftovers import count_strays, leftovers
from tests.runtime_simulation.members import Members
from tests.runtime_simulation.plan import Plan, smaller
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.unclean_faults import elect_again
from tests.runtime_simulation.world import World

START_S = 12.0
HEALING_S = 20.0
LEADERLESS_S = 8.0
"""How long an operator waits before he gives up a disk, or elects again."""


@dataclass(slots=True)
class Result:
    """What became of a run; `kind` is empty when every check held."""

    seed: int
    plan: Plan
    flaw: str = ""
    kind: str = ""
    message: str = ""
    steps: int = 0
    acknowledged: int = 0
    healed_in_s: float = 0.0
    sometimes: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Tell whether a check failed."""
        return bool(self.kind)


def simulate(
    seed: int, flaw: str = "", *, plan: Plan | None = None, tracing: bool = False
) -> Result:
    """Run one seed, with its own plan or a given one, and with a flaw of `flaws.FLAWS` if named."""
    plan = plan or make_plan(seed)
    world = World(seed, tracing=tracing)
    result = Result(seed, plan, flaw, sometimes=world.sometimes, trace=world.trace)
    with files() as root, _logs_in_trace(world), in_force(flaw):
        try:
            _run(world, plan, root, result)
        except Violation as violation:
            result.kind, result.message = violation.kind, str(violation)
        except OutOfSteps as problem:
            result.kind, result.message = LIVENESS, str(problem)
        if result.kind:
            world.note("VIOLATION %s: %s", result.kind, result.message)
    result.steps = world.loop.steps
    return result


def _run(world: World, plan: Plan, root: Path, result: Result) -> None:
    cluster = Cluster(world, root, plan)
    machine = cluster.machine
    with (
        cluster.system.in_force(),
        forwarding.in_force(machine.web),
        machine.sockets.in_force(),
        cluster_clocks.watched(cluster, reports=not result.flaw),
        nullcontext() if result.flaw else commits.watched(cluster),
    ):
        try:
            _live(cluster, plan, result)
        finally:
            result.acknowledged = sum(producer.acked for producer in cluster.producers)
            result.acknowledged += sum(producer.count for producer in cluster.client_producers)
            cluster.end()


def _live(cluster: Cluster, plan: Plan, result: Result) -> None:
    cluster.start()
    topics = TOPICS[: plan.topics]
    cluster.create_topics(topics, plan.partitions, plan.replication_factor or plan.brokers)
    first = [TopicPartition(topic, n) for topic in topics for n in range(plan.partitions)]
    if plan.group is not None:
        cluster.create_topics([GROUP_TOPIC], plan.group.partitions, 3)
        first += [TopicPartition(GROUP_TOPIC, n) for n in range(plan.group.partitions)]
    if not cluster.run(START_S, lambda: all(cluster.topics.state(each) for each in first)):
        raise Violation(LIVENESS, "no topic could be created without any fault")
    most = range(MOST_PARTITIONS if plan.actions else plan.partitions)
    clients_of = [TopicPartition(t, n) for t in TOPICS[: plan.topics] for n in most]
    cluster.produce(clients_of, plan.producers, plan.pause_s)
    if plan.publishes:
        cluster.publish(clients_of[: plan.partitions], plan.pause_s)
    cluster.read(clients_of)
    if plan.group is not None:
        cluster.read(TopicPartition(GROUP_TOPIC, n) for n in range(plan.group.partitions))
        cluster.start_group(plan.group)
        if plan.group.replaced:
            last = TopicPartition(GROUP_TOPIC, plan.group.partitions - 1)
            cluster.produce([last], 2, max(plan.pause_s, 0.1))
    administration = _administration(cluster, plan)
    faults = Faults(cluster, plan)
    cluster.run(plan.horizon_s)
    faults.heal()
    _heal(cluster, administration, result)


def _administration(cluster: Cluster, plan: Plan) -> Administration:
    group, topic = plan.group, None
    if group is not None:
        begin = partial(cluster.start_clients, group)
        assert cluster.members is not None
        leave, join = cluster.members.leave_all, cluster.members.join_all
        quiet = cluster.quiet_clients
        topic = GroupTopic(GROUP_TOPIC, group.partitions, quiet, begin, leave, join)
    administration = Administration(
        cluster.world,
        cluster.network,
        cluster.topics,
        list(TOPICS[: plan.topics]),
        plan.partitions,
        plan.replication_factor or plan.brokers,
        cluster.brokers,
        [host.name for host in cluster.controllers],
        cluster.configs,
        topic,
    )
    administration.begin(plan.actions)
    return administration


def _heal(cluster: Cluster, administration: Administration, result: Result) -> None:
    """Wait until everything has recovered, and check it.

    Raises:
        Violation: it has not, or something is wrong.

    """
    world = cluster.world
    healed_at_s = world.loop.now_s
    administration.keep_topics()
    if cluster.wiped is not None:
        cluster.run(LEADERLESS_S)
        cluster.elect_after_wiped_disk()
    if cluster.unclean is not None:
        cluster.run(LEADERLESS_S)
        elect_again(cluster)
    count_strays(cluster)
    if not cluster.run_in_steps(HEALING_S, lambda: _is_administered(cluster, administration)):
        raise Violation(ADMINISTRATION, "; ".join(leftovers(cluster)) or "requests go on")
    partitions = [each for each in cluster.topics.partitions() if not cluster.is_lost(each)]
    before = {producer: producer.acked for producer in cluster.producers}
    of_clients = {one: one.count for one in cluster.client_producers if not one.stopped}

    def recovered() -> bool:
        return (
            cluster.complete(partitions)
            and all(
                producer.acked > acked
                for producer, acked in before.items()
                if any(map(producer.of, partitions))
            )
            and all(producer.count > count for producer, count in of_clients.items())
        )

    if not cluster.run_in_steps(HEALING_S, recovered):
        check_acknowledged(cluster, partitions)
        raise Violation(LIVENESS, cluster.describe(partitions))
    result.healed_in_s = world.loop.now_s - healed_at_s
    cluster.stop_producers()
    if not cluster.run_in_steps(HEALING_S, lambda: cluster.is_settled(partitions)):
        check_acknowledged(cluster, partitions)
        raise Violation(LIVENESS, f"not settled: {cluster.describe(partitions)}")
    check_everything(cluster, partitions)
    if cluster.members is not None:
        _check_group(cluster, cluster.members)
    if (gone := cluster.gone()) is not None:
        world.reached(REBUILT)
        _check_return(cluster, gone, partitions)


def _check_return(
    cluster: Cluster, broker: BrokerService, partitions: Sequence[TopicPartition]
) -> None:
    """Let a broker return whose replicas were rebuilt: it must end with none of them.

    Raises:
        Violation: something is wrong.

    """
    cluster.give_back(broker)

    def settled() -> bool:
        return not leftovers(cluster) and cluster.complete(cluster.topics.partitions())

    if not cluster.run_in_steps(HEALING_S, settled):
        raise Violation(ADMINISTRATION, "; ".join(leftovers(cluster)) or "not complete")
    check_everything(cluster, partitions)


def _check_group(cluster: Cluster, members: Members) -> None:
    """Wait until the group has consumed and committed everything, and check what it did.

    Raises:
        Violation: it has not, or something is wrong.

    """
    of_group = [one for one in cluster.topics.partitions() if one.topic == GROUP_TOPIC]

    def done() -> bool:
        stored, acked = committed(cluster, of_group), group_records.acknowledged(cluster)
        return members.is_settled(of_group) and all(
            stored.get(one, 0) > max(offsets) for one, offsets in acked.items()
        )

    if not cluster.run_in_steps(HEALING_S, done):
        stored = committed(cluster, of_group)
        raise Violation(LIVENESS, f"the group is not done: committed {stored}")
    require(GROUP, [*moved_back(cluster, of_group), *of_other_topics(cluster, members.events())])
    # Retention may have removed more while the group was on its way.
    require(GROUP, members.judge(group_records.acknowledged(cluster)))
    members.count_kept()


def _is_administered(cluster: Cluster, administration: Administration) -> bool:
    """Tell whether all that operators asked for is done, and nothing of it is left over."""
    if not administration.is_done:
        return False
    if not cluster.is_healed():
        return False
    lost = any(map(cluster.is_lost, cluster.topics.partitions()))
    return lost or not leftovers(cluster)


@contextmanager
def _logs_in_trace(world: World) -> Iterator[None]:
    """Put what the services log into the trace, or drop it."""

    def note(_: Any, method: str, event: MutableMapping[str, Any]) -> str:
        if world.tracing and not world.loop.is_closed():
            text = " ".join(f"{name}={value}" for name, value in event.items())
            world.note("  %s %s: %s", OWNER.get(), method, text)
        raise structlog.DropEvent

    structlog.configure(processors=[note], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()


def search(seeds: Iterable[int], flaw: str = "", *, plan: Plan | None = None) -> Result | None:
    """Return the first run that fails; all with one plan if there is one."""
    runs = (simulate(seed, flaw, plan=plan) for seed in seeds)
    return next((result for result in runs if result.failed), None)


def shrink(result: Result) -> Result:
    """Leave out parts of the plan while the same kind of violation remains."""
    best, progress = result, True
    while progress:
        progress = False
        for plan in smaller(best.plan):
            tried = simulate(result.seed, result.flaw, plan=plan)
            if tried.kind == result.kind:
                best, progress = tried, True
                break
    return simulate(result.seed, result.flaw, plan=best.plan, tracing=True)


def report(result: Result) -> str:
    """Return plan, trace, verdict and the command that replays the seed."""
    plan = [f"    plan  {each}" for each in (*result.plan.faults, *result.plan.actions)]
    weather = [f"    {result.plan.network}", f"    {result.plan.zookeeper}"]
    verdict = f"{result.kind}: {result.message}" if result.failed else "every check held"
    off = f" --flaw {result.flaw}" if result.flaw else ""
    replay = f"replay: .venv/bin/python -m tests.runtime_simulation --seed {result.seed}{off}"
    return "\n".join([*plan, *weather, *result.trace, verdict, replay])
