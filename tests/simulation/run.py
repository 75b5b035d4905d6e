"""One seed from start to verdict, and the search for a small failing plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from leadline_broker.domain.rules import ALL_RULES, Rules
from tests.simulation.checks import ANOMALY, STUCK, Checks, Violation
from tests.simulation.cluster import Cluster
from tests.simulation.faults import HORIZON_MS, Faults, Plan, make_plan
from tests.simulation.messages import PARTITION, TOPIC
from tests.simulation.network import Weather
from tests.simulation.workload import Producer
from tests.simulation.world import World
from tests.simulation.zookeeper import Trouble
from tests.support.checks.history import History, Read

HEALING_MS = 4000.0


@dataclass(slots=True)
class Result:
    """What became of a run; `kind` is empty when every check held."""

    seed: int
    kind: str = ""
    message: str = ""
    steps: int = 0
    acknowledged: int = 0
    sometimes: Counter[str] = field(default_factory=Counter)
    plan: Plan | None = None
    trace: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Tell whether a check failed."""
        return bool(self.kind)


def simulate(
    seed: int, rules: Rules = ALL_RULES, *, plan: Plan | None = None, tracing: bool = False
) -> Result:
    """Run one seed, with its own plan or a given one."""
    plan = plan or make_plan(seed)
    world = World(seed, rules, tracing=tracing)
    checks = Checks(losses_only=rules != ALL_RULES)
    result = Result(seed, plan=plan, sometimes=world.sometimes, trace=world.trace)
    try:
        _run(world, checks, plan)
    except Violation as violation:
        result.kind, result.message = violation.kind, str(violation)
        world.note("VIOLATION %s", result.message)
    result.steps = world.steps
    result.acknowledged = len(checks.acknowledged)
    return result


def _run(world: World, checks: Checks, plan: Plan) -> None:
    cluster = Cluster(
        world, checks, replicas=plan.replicas, spares=plan.spares, controllers=plan.controllers
    )
    history = History()
    cluster.start()
    producers = [
        Producer(cluster, number, history, plan.pause_ms) for number in range(plan.producers)
    ]
    faults = Faults(cluster, plan)
    world.run(HORIZON_MS)
    faults.heal()
    sent = [producer.value for producer in producers]

    def recovered() -> bool:
        state = cluster.published
        return (
            state is not None
            and not cluster.reassigning
            and len(state.isr) == len(cluster.assignment)
            and any(p.done > value for p, value in zip(producers, sent, strict=True))
        )

    if not world.run(HORIZON_MS + HEALING_MS, recovered):
        roles = {b: n.process and n.process.shell.replica.role for b, n in cluster.brokers.items()}
        checks.fail(STUCK, f"{cluster.published}, {roles}")
    for producer in producers:
        producer.kill()
    world.run(world.now + 300)
    checks.check_end()
    _check_history(checks, cluster, history)


def _check_history(checks: Checks, cluster: Cluster, history: History) -> None:
    """Judge the whole run as a user sees it, with the checker of the black-box tests."""
    reads = [
        Read((TOPIC, PARTITION), [(o, r[1]) for o, r in enumerate(disk.log.records)], f"broker {b}")
        for b, disk in cluster.disks.items()
        if b in cluster.assignment
    ]
    anomalies = history.check(reads)
    if anomalies:
        checks.fail(ANOMALY, "; ".join(str(anomaly) for anomaly in anomalies[:3]))


def search(seeds: Iterable[int], rules: Rules = ALL_RULES, *, kind: str = "") -> Result | None:
    """Return the first failing run; with `kind` the first that fails in this way."""
    for seed in seeds:
        result = simulate(seed, rules)
        if result.failed and kind in {"", result.kind}:
            return result
    return None


def report(result: Result, rules: Rules = ALL_RULES) -> str:
    """Return plan, trace, verdict and the command that replays the seed."""
    off = "".join(f" --off {rule.name}" for rule in fields(rules) if not getattr(rules, rule.name))
    plan = [f"    plan  {fault}" for fault in result.plan.faults] if result.plan else []
    command = f"replay: .venv/bin/python -m tests.simulation --seed {result.seed}{off}"
    return "\n".join([*plan, *result.trace, result.message or "every check held", command])


def shrink(result: Result, rules: Rules = ALL_RULES) -> Result:
    """Leave out faults, and calm the weather, while the same kind of violation remains."""
    best = result
    progress = True
    while progress and best.plan is not None:
        progress = False
        for plan in _smaller(best.plan):
            tried = simulate(result.seed, rules, plan=plan)
            if tried.kind == result.kind:
                best, progress = tried, True
                break
    return simulate(result.seed, rules, plan=best.plan, tracing=True)


def _smaller(plan: Plan) -> Iterable[Plan]:
    """Yield the plans that leave out one thing each."""
    for index in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
    calmer = [
        replace(plan, weather=Weather()),
        replace(plan, weather=replace(plan.weather, loss=0)),
        replace(plan, weather=replace(plan.weather, repeat=0)),
        replace(plan, weather=replace(plan.weather, late=0)),
        replace(plan, trouble=Trouble()),
        replace(plan, trouble=replace(plan.trouble, lost_before=0)),
        replace(plan, trouble=replace(plan.trouble, lost_after=0)),
        replace(plan, trouble=replace(plan.trouble, slow_answer=0)),
        replace(plan, trouble=replace(plan.trouble, lag_ms=0)),
        replace(plan, trouble=replace(plan.trouble, watch_lost=0)),
        replace(plan, slow_fsync=0),
        replace(plan, ambush=0),
    ]
    yield from (smaller for smaller in calmer if smaller != plan)
