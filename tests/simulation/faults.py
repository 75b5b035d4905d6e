"""What goes wrong in a run: a plan made from the seed, with weights that differ per seed.

A plan is a list of faults at times, so that a failing run can be cut down by
leaving some out. `LEADER` and `FOLLOWER` as targets mean the current leader, or
follows in sync, when the fault strikes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from leadline_broker.domain.effects import IsrProposal
from leadline_client.wire import NO_LEADER
from tests.simulation.broker_shell import BrokerProcess
from tests.simulation.cluster import Cluster
from tests.simulation.network import Weather
from tests.simulation.world import Process
from tests.simulation.zookeeper import Trouble

OPERATOR_LOOKS_MS = 600.0
LEADER = 0
FOLLOWER = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong at a time; `until` is how long it lasts, in ms."""

    time: float
    kind: str
    targets: tuple[int, ...] = ()
    until: float = 0.0

    def __str__(self) -> str:
        names = {LEADER: "leader", FOLLOWER: "follower"}
        targets = " and ".join(names.get(t, str(t)) for t in self.targets)
        return f"{self.time:8.1f}  {self.kind} {targets}, {self.until:.0f} ms"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that goes wrong in one run."""

    weather: Weather
    trouble: Trouble
    slow_fsync: float
    ambush: float
    producers: int
    pause_ms: float
    replicas: int
    spares: int
    controllers: int
    faults: tuple[Fault, ...]


class Faults:
    """Lets faults strike, and ends them."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.healed = False
        self._ambush = plan.ambush
        self._strikes: dict[str, Callable[[tuple[int, ...], float], None]] = {
            "kill": lambda t, until: self._crash(t, until, power=False),
            "power": lambda t, until: self._crash(t, until, power=True),
            "swap disk": self._swap_disk,
            "pause": self._pause,
            "cut zk": self._cut_zookeeper,
            "expire": self._expire,
            "cut": lambda t, until: self._cut(t, until, both=True),
            "cut one way": lambda t, until: self._cut(t, until, both=False),
            "slow": self._slow,
            "late orders": self._late_orders,
            "lose orders": self._lose_orders,
            "kill controller": self._kill_controller,
            "pause controller": self._pause_controller,
            "cut controller from zk": self._cut_controller,
            "depose controller": lambda _targets, _until: cluster.depose_controller(),
            "move leader": lambda t, _until: cluster.move_leader(t[0]),
            "reassign": lambda t, _until: cluster.reassign(t),
            "cancel reassignment": lambda _targets, _until: cluster.cancel_reassignment(),
            "set min.insync.replicas": lambda t, _until: cluster.set_min_insync(t[0]),
        }
        cluster.network.weather = plan.weather
        cluster.zookeeper.trouble = plan.trouble
        cluster.slow_fsync = plan.slow_fsync
        cluster.on_proposal = self._on_proposal
        for fault in plan.faults:
            self.world.schedule(fault.time, None, self._strike, fault)

    def heal(self) -> None:
        """End all trouble and start whatever is down."""
        self.world.note("everything heals")
        self.healed = True
        cluster = self.cluster
        cluster.network.calm()
        cluster.zookeeper.trouble = Trouble()
        cluster.slow_fsync = 0.0
        brokers = [node.process for node in cluster.brokers.values()]
        controllers = [node.process for node in cluster.controllers.values()]
        for process in (*brokers, *controllers):
            if process is not None:
                process.resume()
                process.session.reconnect()
        cluster.start()
        self._later(OPERATOR_LOOKS_MS, self._look_for_a_leader)

    def _look_for_a_leader(self) -> None:
        """Let an operator order an unclean election where only a lost disk could lead cleanly."""
        if self.cluster.leader == NO_LEADER:
            self.cluster.order_unclean_election()
            self._later(OPERATOR_LOOKS_MS, self._look_for_a_leader)

    def _strike(self, fault: Fault) -> None:
        if self.healed:
            return
        targets = tuple(self._resolve(t) for t in fault.targets)
        self.world.note("FAULT %s %s", fault.kind, targets)
        self._strikes[fault.kind](targets, fault.until)

    def _resolve(self, target: int) -> int:
        if target > 0:
            return target
        leader = self.cluster.leader
        if target == LEADER:
            return leader if leader > 0 else 1
        state = self.cluster.published
        others = [b for b in (state.isr if state else ()) if b != leader]
        return others[0] if others else self.cluster.assignment[-1]

    def _later(self, delay: float, action: Callable[..., object], *args: object) -> None:
        self.world.schedule(delay, None, action, *args)

    # -- processes --------------------------------------------------------------------

    def _crash(self, targets: tuple[int, ...], until: float, *, power: bool) -> None:
        for broker in targets:
            self.cluster.kill_broker(broker, power=power)
            self._later(until, self.cluster.start_broker, broker)

    def _swap_disk(self, targets: tuple[int, ...], until: float) -> None:
        self.cluster.swap_disk(targets[0])
        self._later(until, self.cluster.start_broker, targets[0])

    def _pause(self, targets: tuple[int, ...], until: float) -> None:
        process = self.cluster.brokers[targets[0]].process
        if process is not None:
            self._freeze(process, until)
            process.session.disconnect()
            self._later(until, process.session.reconnect)

    def _freeze(self, process: Process, until: float) -> None:
        process.pause()
        self._later(until, process.resume)

    def _kill_controller(self, targets: tuple[int, ...], until: float) -> None:
        number = self._controller(targets[0])
        self.cluster.kill_controller(number)
        self._later(until, self.cluster.start_controller, number)

    def _pause_controller(self, targets: tuple[int, ...], until: float) -> None:
        process = self.cluster.controllers[self._controller(targets[0])].process
        if process is not None:
            self._freeze(process, until)
            process.session.disconnect()
            self._later(until, process.session.reconnect)

    def _cut_controller(self, targets: tuple[int, ...], until: float) -> None:
        process = self.cluster.controllers[self._controller(targets[0])].process
        if process is not None:
            process.session.disconnect()
            self._later(until, process.session.reconnect)

    def _controller(self, wanted: int) -> int:
        """Return the active controller, or the wanted one when there is none."""
        for number, node in self.cluster.controllers.items():
            if node.process is not None and node.process.active:
                return number
        return min(wanted, len(self.cluster.controllers))

    # -- ZooKeeper ----------------------------------------------------------------------

    def _cut_zookeeper(self, targets: tuple[int, ...], until: float) -> None:
        process = self.cluster.brokers[targets[0]].process
        if process is not None:
            process.session.disconnect()
            self._later(until, process.session.reconnect)

    def _expire(self, targets: tuple[int, ...], _until: float) -> None:
        process = self.cluster.brokers[targets[0]].process
        if process is not None:
            process.session.expire()

    # -- network ------------------------------------------------------------------------

    def _cut(self, targets: tuple[int, ...], until: float, *, both: bool) -> None:
        first, second = (f"broker {t}" for t in targets[:2])
        for source, target in [(first, second), (second, first)][: 1 + both]:
            self.cluster.network.cut(source, target)
            self._later(until, self.cluster.network.heal, source, target)

    def _slow(self, targets: tuple[int, ...], until: float) -> None:
        """Slow a broker's requests to its peers down."""
        for other in self.cluster.everyone:
            self._delay(f"broker {targets[0]}", f"broker {other}", until / 2, until)

    def _lose_orders(self, targets: tuple[int, ...], until: float) -> None:
        """Lose what controllers send to a broker."""
        for number in self.cluster.controllers:
            link = (f"controller {number}", f"broker {targets[0]}")
            self.cluster.network.cut(*link)
            self._later(until, self.cluster.network.heal, *link)

    def _late_orders(self, targets: tuple[int, ...], until: float) -> None:
        """Let what controllers send to a broker from now on arrive late."""
        for number in self.cluster.controllers:
            for broker in targets:
                self._delay(f"controller {number}", f"broker {broker}", until / 2, until)

    def _delay(self, source: str, target: str, delay: float, until: float) -> None:
        self.cluster.network.slow[source, target] = delay
        self._later(until, self.cluster.network.slow.pop, (source, target), None)

    # -- ambush -------------------------------------------------------------------------

    def _on_proposal(self, process: BrokerProcess, proposal: IsrProposal, grows: bool) -> None:
        """When an ISR grows, sometimes: break the write, slow the joiner, kill the others."""
        if not grows or self.healed or not self.world.chance(self._ambush):
            return
        state = process.shell.replica.state
        joiner = next(b for b in proposal.isr if b not in state.isr)
        self.world.note("AMBUSH on broker %d joining", joiner)
        random = self.world.random
        process.session.next_fate = random.choice(["", "lost after", "slow answer"])
        self._delay(f"broker {joiner}", process.name, 150, 120)
        others = tuple(b for b in self.cluster.assignment if b != joiner)
        delay = self.world.between(8, 60)
        self._later(delay, self._crash_both, others, self.world.between(250, 400))

    def _crash_both(self, targets: tuple[int, ...], until: float) -> None:
        if not self.healed:
            self._crash(targets, until, power=self.world.chance(0.3))


# -- plans ------------------------------------------------------------------------------

_KINDS = (
    "kill",
    "power",
    "pause",
    "cut zk",
    "expire",
    "cut",
    "cut one way",
    "slow",
    "late orders",
    "lose orders",
    "kill controller",
    "pause controller",
    "cut controller from zk",
    "depose controller",
    "move leader",
)

HORIZON_MS = 1500.0


def make_plan(seed: int) -> Plan:
    """Draw a plan: its weights first, so that plans of different seeds differ in character."""
    random = Random(f"plan {seed}")
    replicas = 2 if random.random() < 0.15 else 3
    weights = [random.choice([0, 0, 1, 1, 3]) for _ in _KINDS]
    faults = [] if random.random() < 0.4 else _opening(random, replicas)
    begin = max((fault.time for fault in faults), default=0.0) + 60
    if any(weights):
        for _ in range(random.randrange(1, 9)):
            time = random.uniform(begin, HORIZON_MS)
            kind = random.choices(_KINDS, weights)[0]
            faults.append(_random_fault(random, time, kind, replicas))
    spares, moves = _reassignments(Random(f"reassignment {seed}"), replicas)
    swaps = []
    if all(len(move.targets) != 1 or move.kind != "reassign" for move in moves):
        swaps = _disk_swaps(Random(f"disk {seed}"), replicas)
    faults += swaps
    # Records that only one disk had may be lost with it.
    minimums = [2, 3] if swaps else [1, 1, 2, 3]
    changes = _config_changes(Random(f"configs {seed}"), minimums)
    return Plan(
        weather=Weather(
            loss=random.choice([0, 0, 0.01, 0.05, 0.15]),
            repeat=random.choice([0, 0, 0.05, 0.3]),
            late=random.choice([0, 0, 0.02, 0.2]),
            late_ms=random.choice([30, 200]),
        ),
        trouble=Trouble(
            lost_before=random.choice([0, 0, 0.05, 0.2]),
            lost_after=random.choice([0, 0, 0.05, 0.3]),
            slow_answer=random.choice([0, 0, 0.1, 0.4]),
            lag_ms=random.choice([0, 10, 100]),
            watch_lost=random.choice([0, 0.1, 1]),
            watch_late_ms=random.choice([2, 50]),
        ),
        slow_fsync=random.choice([0, 0, 0.1, 0.4]),
        ambush=random.choice([0, 0, 0.3, 1]),
        producers=random.choice([1, 2, 3]),
        pause_ms=random.choice([5, 30, 80]),
        replicas=replicas,
        spares=spares,
        controllers=random.choice([1, 2]),
        faults=tuple(sorted([*faults, *moves, *changes], key=lambda fault: fault.time)),
    )


def _random_fault(random: Random, time: float, kind: str, replicas: int) -> Fault:
    brokers = [*range(1, replicas + 1)]
    until = random.choice([20.0, 60.0, 140.0, 250.0, 400.0]) * random.uniform(0.7, 1.3)
    targets: tuple[int, ...]
    if kind in {"kill", "power"}:
        count = random.choice([1, 1, 2, len(brokers)])
        targets = tuple(random.sample(brokers, count))
        if count == 1:
            targets = (random.choice([LEADER, FOLLOWER, *brokers]),)
    elif kind.startswith("cut"):
        targets = tuple(random.sample([LEADER, *brokers], 2))
    else:
        targets = (random.choice([LEADER, FOLLOWER, *brokers]),)
    return Fault(time, kind, targets, until)


def _reassignments(random: Random, replicas: int) -> tuple[int, list[Fault]]:
    """Draw how many brokers stand by, when replicas move, and what happens to them meanwhile."""
    if random.random() < 0.7:
        return 0, []
    spares = random.choice([1, 2, 2])
    everyone = range(1, replicas + spares + 1)
    moves = []
    for _ in range(random.choice([1, 1, 2, 3])):
        time = random.uniform(100, 0.8 * HORIZON_MS)
        size = random.choice([1, 2, 3, 3])
        target = tuple(random.sample(everyone, min(size, len(everyone))))
        moves.append(Fault(time, "reassign", target))
        if random.random() < 0.25:
            moves.append(Fault(time + random.uniform(3, 120), "cancel reassignment"))
        for _ in range(random.choice([0, 1, 2])):
            kind = random.choice(["kill", "power", "pause", "expire", "lose orders", "late orders"])
            broker = random.choice([LEADER, FOLLOWER, *target])
            again = random.uniform(20, 400)
            moves.append(Fault(time + random.uniform(3, 150), kind, (broker,), again))
    return spares, moves


def _config_changes(random: Random, minimums: list[int]) -> list[Fault]:
    """Draw how often min.insync.replicas changes, and when."""
    count = 0 if random.random() < 0.7 else random.choice([1, 2, 4])
    times = [random.uniform(100, HORIZON_MS) for _ in range(count)]
    return [Fault(time, "set min.insync.replicas", (random.choice(minimums),)) for time in times]


def _disk_swaps(random: Random, replicas: int) -> list[Fault]:
    """Draw when one broker gets a new disk, or its old one back, and what else strikes then.

    It is one broker only: an acknowledged record is on two disks, so that one is left. Partitions
    of one replica have no disk to lose.
    """
    if random.random() < 0.8:
        return []
    victim = random.randrange(1, replicas + 1)
    others = tuple(b for b in range(1, replicas + 1) if b != victim)
    swaps = []
    time = random.uniform(150, 400)
    for _ in range(random.choice([1, 1, 2, 3])):
        swaps.append(Fault(time, "swap disk", (victim,), random.uniform(1, 200)))
        story = random.random()
        if story < 0.4:  # The other members go before it has left the ISR.
            swaps.append(Fault(time + random.uniform(-60, 60), "kill", others, 350))
        elif story < 0.7:  # It is the last member.
            for place, other in enumerate(others):
                swaps.append(Fault(time - 130 * (place + 1), "kill", (other,), 900))
        time += random.uniform(200, 500)
    return swaps


def _opening(random: Random, replicas: int) -> list[Fault]:
    """Draw a directed beginning: a sequence that chance alone seldom finds."""
    start = random.uniform(120, 250)
    openings = [_double_move, _move_and_kill, _fast_bounce, _left_behind]
    return random.choice(openings)(random, start, replicas)


def _double_move(random: Random, start: float, replicas: int) -> list[Fault]:
    """Leadership moves away and back; the first leader never learns of it, the others late.

    The last replica learns of the first move just when it is over, and cuts its
    log to fit a leader that is none any more. Then the real one dies.
    """
    first, middle, last = 1, 2, replicas
    away = random.uniform(30, 80)
    late = random.uniform(130, 200)
    return [
        Fault(start - 2, "late orders", (last,), 2 * late),
        Fault(start - 2, "lose orders", (first,), away),
        Fault(start, "move leader", (middle,)),
        Fault(start + away, "late orders", (middle,), 1000),
        Fault(start + away + 1, "move leader", (first,)),
        Fault(start + late + random.uniform(5, 20 + away), "kill", (first,), 350),
    ]


def _move_and_kill(random: Random, start: float, replicas: int) -> list[Fault]:
    """Leadership moves, and shortly after all but one replica die."""
    survivor = random.randrange(1, replicas + 1)
    others = tuple(b for b in range(1, replicas + 1) if b != survivor)
    delay = random.uniform(5, 40)
    return [
        Fault(start, "move leader", (random.randrange(2, replicas + 1),)),
        Fault(start + delay, random.choice(["kill", "power"]), others, 350),
    ]


def _fast_bounce(random: Random, start: float, _replicas: int) -> list[Fault]:
    """The leader loses power and is back before its session expires."""
    down = random.uniform(1, 40)
    again = start + random.uniform(100, 300)
    return [
        Fault(start, "power", (LEADER,), down),
        Fault(again, "power", (LEADER,), down),
    ]


def _left_behind(random: Random, start: float, replicas: int) -> list[Fault]:
    """A follower falls out of the ISR, leadership moves, the follower comes back."""
    late = replicas
    gone = random.uniform(120, 200)
    back = start + gone
    return [
        Fault(start, "cut", (late, 1), gone),
        Fault(start, "cut", (late, 2), gone),
        Fault(back - random.uniform(0, 30), "kill", (LEADER,), 350),
        Fault(back + random.uniform(150, 260), "kill", (LEADER,), 350),
    ]
