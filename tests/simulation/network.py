"""Messages between processes: late, lost, twice, out of order; links that are cut or slow.

A call has a request and an answer, as separate messages. A request goes to
whichever process runs at the address when it arrives; an answer goes only to
the very process that asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.simulation.world import Process, World

P = TypeVar("P", bound=Process)
Q = TypeVar("Q")
A = TypeVar("A")
Answer = Callable[[A], None]


class Node(Generic[P]):
    """An address, and the process that runs there at present."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: P | None = None


@dataclass(slots=True)
class Weather:
    """How unreliable messages are in one run: probabilities per message."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    late_ms: float = 200.0


class Network:
    """Every link between processes, by the names of its ends (first the sender)."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.down: dict[tuple[str, str], int] = {}
        self.slow: dict[tuple[str, str], float] = {}

    def cut(self, source: str, target: str) -> None:
        """Lose every message in this direction until `heal`."""
        self.down[source, target] = self.down.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Undo one `cut`."""
        left = self.down.get((source, target), 0) - 1
        if left > 0:
            self.down[source, target] = left
        else:
            self.down.pop((source, target), None)

    def calm(self) -> None:
        """End all trouble, but for messages that are under way."""
        self.weather = Weather()
        self.down.clear()
        self.slow.clear()

    def call(
        self,
        source: Process,
        target: Node[P],
        handler: Callable[[P, Q, Answer[A]], None],
        request: Q,
        on_answer: Answer[A],
        *,
        once: bool = False,
    ) -> None:
        """Send a request; `on_answer` runs for each answer that arrives.

        With `once` the messages may be late or lost, but are never repeated.
        """

        def answer(value: A) -> None:
            self._send(target.name, source.name, once, source, on_answer, value)

        def arrive() -> None:
            process = target.process
            if process is not None:
                self.world.schedule(0, process, handler, process, request, answer)

        self._send(source.name, target.name, once, None, arrive)

    def _send(
        self,
        source: str,
        target: str,
        once: bool,
        owner: Process | None,
        action: Callable[..., object],
        *args: Any,
    ) -> None:
        world, weather = self.world, self.weather
        if (source, target) in self.down or world.chance(weather.loss):
            return
        delay = 0.5 + 3 * world.random.random() + self.slow.get((source, target), 0.0)
        if world.chance(weather.late):
            delay += weather.late_ms * world.random.random()
        world.schedule(delay, owner, action, *args)
        if not once and world.chance(weather.repeat):
            again = delay + weather.late_ms * world.random.random()
            world.schedule(again, owner, action, *args)
