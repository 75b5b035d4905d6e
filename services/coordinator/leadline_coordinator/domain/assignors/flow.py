"""The cheapest flow through a network: what each arc carries so that no node has an excess. Pure.

Method: the primal-dual method with blocking flows. Each node has a price, such that no arc with
room has a reduced cost (its cost, plus the price of its tail, less that of its head) below 0. A
shortest path from a node with an excess to one with a deficit follows arcs of the reduced cost 0.
The search layers the nodes by their distance along such arcs, and fills all shortest paths at once
(Dinic). When none is left, the prices rise by the next distance (Dijkstra). So the number of
searches depends on the lengths and the costs of paths, not on the amounts that flow.

See Ahuja, Magnanti and Orlin, "Network Flows", sections 7.5 and 9.8.
"""

from __future__ import annotations

from heapq import heappop, heappush

_FAR = 1 << 60


class Network:
    """Nodes and arcs are numbers. A node with a positive excess sends it to those with a deficit.

    An arc may carry a flow from the start, if that flow is a cheapest one for the excesses that
    remain: if no arc with room, in either direction, has a cost below 0.
    """

    def __init__(self, nodes: int) -> None:
        self.excess = [0] * nodes
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]
        self._heads: list[int] = []
        self._room: list[int] = []
        self._costs: list[int] = []
        self._prices = [0] * nodes
        self._layers: list[int] = []
        self._next: list[int] = []

    def add(self, tail: int, head: int, *, room: int, flow: int = 0, cost: int = 0) -> int:
        """Add an arc with room for more, and return its number. Its reverse has the next one."""
        arc = len(self._heads)
        self._arcs[tail].append(arc)
        self._arcs[head].append(arc + 1)
        self._heads += (head, tail)
        self._room += (room, flow)
        self._costs += (cost, -cost)
        return arc

    def flow(self, arc: int) -> int:
        """Return what an arc carries."""
        return self._room[arc + 1]

    def solve(self) -> None:
        """Send as much of the excesses to deficits as possible, at the least cost."""
        while True:
            while self._layer():
                self._fill()
            if not self._raise_prices():
                return

    def reachable(self) -> list[bool]:
        """Return for each node whether what could not be sent can reach it, where no arc costs."""
        return [layer >= 0 for layer in self._layers]

    def _layer(self) -> bool:
        """Layer the nodes by distance from an excess; tell whether a deficit was reached."""
        row = [node for node, excess in enumerate(self.excess) if excess > 0]
        self._layers = layers = [-1] * len(self.excess)
        for node in row:
            layers[node] = 0
        depth, found = 0, False
        heads, room, costs, prices = self._heads, self._room, self._costs, self._prices
        while row and not found:
            depth += 1
            reached = []
            for tail in row:
                price = prices[tail]
                for arc in self._arcs[tail]:
                    head = heads[arc]
                    if room[arc] and layers[head] < 0 and costs[arc] + price == prices[head]:
                        layers[head] = depth
                        reached.append(head)
            found = any(self.excess[node] < 0 for node in reached)
            row = reached
        return found

    def _fill(self) -> None:
        """Fill paths from layer to layer until none is left."""
        self._next = [0] * len(self.excess)
        for source in range(len(self.excess)):
            while self.excess[source] > 0 and (path := self._path(source)):
                self._send(source, path)

    def _path(self, source: int) -> list[int]:
        """Return the arcs from a source to a deficit, or none. Dead ends are not tried again."""
        path: list[int] = []
        node = source
        while self.excess[node] >= 0:
            arc = self._arc_down(node)
            if arc >= 0:
                path.append(arc)
                node = self._heads[arc]
            elif path:
                node = self._heads[path.pop() ^ 1]
                self._next[node] += 1
            else:
                break
        return path

    def _arc_down(self, node: int) -> int:
        """Return the arc to try next: one with room to the next layer; -1 if there is none."""
        arcs, below = self._arcs[node], self._layers[node] + 1
        price, place = self._prices[node], self._next[node]
        while place < len(arcs):
            arc = arcs[place]
            head = self._heads[arc]
            is_next = self._room[arc] and self._layers[head] == below
            if is_next and self._costs[arc] + price == self._prices[head]:
                break
            place += 1
        self._next[node] = place
        return arcs[place] if place < len(arcs) else -1

    def _send(self, source: int, path: list[int]) -> None:
        """Send along a path what its arcs and its ends allow."""
        end = self._heads[path[-1]]
        amount = min(self.excess[source], -self.excess[end], *[self._room[arc] for arc in path])
        for arc in path:
            self._room[arc] -= amount
            self._room[arc ^ 1] += amount
        self.excess[source] -= amount
        self.excess[end] += amount

    def _raise_prices(self) -> bool:
        """Raise prices by distances from excesses; tell whether a deficit can be reached."""
        distances = [_FAR] * len(self.excess)
        queue = [(0, node) for node, excess in enumerate(self.excess) if excess > 0]
        for _, node in queue:
            distances[node] = 0
        while queue:
            distance, node = heappop(queue)
            if self.excess[node] < 0:
                self._prices = [
                    price + min(distance, far)
                    for price, far in zip(self._prices, distances, strict=True)
                ]
                return True
            if distance == distances[node]:
                self._relax(node, distances, queue)
        return False

    def _relax(self, tail: int, distances: list[int], queue: list[tuple[int, int]]) -> None:
        heads, room, costs, prices = self._heads, self._room, self._costs, self._prices
        base = distances[tail] + prices[tail]
        for arc in self._arcs[tail]:
            head = heads[arc]
            if room[arc] and (distance := base + costs[arc] - prices[head]) < distances[head]:
                distances[head] = distance
                heappush(queue, (distance, head))
