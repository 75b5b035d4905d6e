"""An evaluator of the part of PromQL that the alert rules and the dashboard use.

The syntax tree is that of `promql_parser`; what is not covered here raises `Unsupported`. Results
are those of Prometheus, extrapolation of `rate` included: `tests/unit/test_promql.py` compares them
with values that promtool has computed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql

from tests.support.promql.functions import FUNCTIONS, histogram_quantile
from tests.support.promql.scrapes import Labels, Scrapes

Vector = dict[Labels, float]
Value = Vector | float

_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_AGGREGATIONS: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
    "count": len,
    "avg": lambda values: math.fsum(values) / len(values),
}
_NAME = "__name__"


class Unsupported(Exception):
    """The expression uses something that this evaluator does not know."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates expressions over scrapes, at a time in seconds."""

    scrapes: Scrapes
    at_s: float

    def evaluate(self, expression: str) -> Value:
        """Return the value of an expression: a number, or a number by labels.

        Raises:
            ValueError: the expression cannot be parsed.
            Unsupported: it uses what is not implemented here.

        """
        return self._value(promql.parse(expression))

    def firing(self, expression: str) -> Vector:
        """Return what an alert's expression finds; it fires if that is not empty."""
        found = self.evaluate(expression)
        if isinstance(found, float):
            raise Unsupported("an alert's expression is a vector")
        return found

    def _value(self, node: Any) -> Value:
        match node:
            case promql.NumberLiteral():
                return float(node.val)
            case promql.ParenExpr():
                return self._value(node.expr)
            case promql.VectorSelector():
                return self._select(node)
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.Call():
                return self._call(node)
            case promql.BinaryExpr():
                return self._binary(node)
        raise Unsupported(type(node).__name__)

    def _vector(self, node: Any) -> Vector:
        found = self._value(node)
        if isinstance(found, float):
            raise Unsupported("a number where a vector is expected")
        return found

    def _matching(self, selector: promql.VectorSelector) -> Iterable[Labels]:
        if selector.offset is not None or selector.at is not None:
            raise Unsupported("offset and @")
        for labels in self.scrapes.series.get(selector.name or "", {}):
            if all(_matches(matcher, dict(labels)) for matcher in selector.matchers.matchers):
                yield labels

    def _select(self, selector: promql.VectorSelector) -> Vector:
        name = selector.name or ""
        found = {
            labels: self.scrapes.instant(name, labels, self.at_s)
            for labels in self._matching(selector)
        }
        return {labels | {(_NAME, name)}: v for labels, v in found.items() if v is not None}

    def _call(self, call: promql.Call) -> Value:
        name, arguments = call.func.name, call.args
        if name == "time":
            return self.at_s
        if name == "absent":
            return {} if self._vector(arguments[0]) else {_equalities(arguments[0]): 1.0}
        if name == "histogram_quantile":
            quantile = self._value(arguments[0])
            if not isinstance(quantile, float):
                raise Unsupported("a quantile that is no number")
            return histogram_quantile(quantile, self._vector(arguments[1]))
        if name not in FUNCTIONS:
            raise Unsupported(name)
        return self._over_range(name, arguments[0])

    def _over_range(self, function: str, matrix: promql.MatrixSelector) -> Vector:
        selector, range_s = matrix.vector_selector, matrix.range.total_seconds()
        found = {
            labels: FUNCTIONS[function](
                self.scrapes.window(selector.name or "", labels, self.at_s, range_s),
                self.at_s,
                range_s,
            )
            for labels in self._matching(selector)
        }
        return {labels: value for labels, value in found.items() if value is not None}

    def _aggregate(self, node: promql.AggregateExpr) -> Vector:
        name, modifier = str(node.op), node.modifier
        if name not in _AGGREGATIONS:
            raise Unsupported(name)
        if modifier is not None and modifier.type != promql.AggModifierType.By:
            raise Unsupported("without")
        kept = set(modifier.labels) if modifier is not None else set()
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._vector(node.expr).items():
            groups.setdefault(_only(labels, kept), []).append(value)
        return {labels: float(_AGGREGATIONS[name](group)) for labels, group in groups.items()}

    def _binary(self, node: promql.BinaryExpr) -> Value:
        name = str(node.op)
        left, right = self._value(node.lhs), self._value(node.rhs)
        if node.modifier is not None and node.modifier.return_bool:
            raise Unsupported("bool")
        if isinstance(left, float) and isinstance(right, float):
            return _compute(name, left, right)
        if name in ("and", "or", "unless"):
            return _combine(name, left, right, node.modifier)
        if isinstance(right, float):
            return _filtered(name, {k: (v, right) for k, v in _items(left)}, keep=0)
        if isinstance(left, float):
            return _filtered(name, {k: (left, v) for k, v in right.items()}, keep=1)
        return _joined(name, left, right, node.modifier)


def _items(value: Value) -> Iterable[tuple[Labels, float]]:
    return [] if isinstance(value, float) else value.items()


def _compute(name: str, left: float, right: float) -> float:
    if name == "/":
        return left / right if right else math.nan if not left else math.copysign(math.inf, left)
    if name not in _ARITHMETIC:
        raise Unsupported(name)
    return _ARITHMETIC[name](left, right)


def _filtered(name: str, pairs: Mapping[Labels, tuple[float, float]], *, keep: int) -> Vector:
    """Compare or compute; a comparison keeps the value of the vector, and its name."""
    if name in _COMPARISONS:
        compare = _COMPARISONS[name]
        return {labels: pair[keep] for labels, pair in pairs.items() if compare(*pair)}
    return {_without_name(labels): _compute(name, *pair) for labels, pair in pairs.items()}


def _joined(name: str, left: Vector, right: Vector, modifier: Any) -> Vector:
    """Match each sample of one side with the one of the same labels on the other."""
    if modifier is not None and modifier.card != promql.VectorMatchCardinality.OneToOne:
        raise Unsupported("group_left and group_right")
    others = {_key(labels, modifier): value for labels, value in right.items()}
    if len(others) < len(right):
        raise ValueError("many-to-one matching must be explicit")
    pairs = {
        labels: (value, others[key])
        for labels, value in left.items()
        if (key := _key(labels, modifier)) in others
    }
    if len({_key(labels, modifier) for labels in pairs}) < len(pairs):
        raise ValueError("many-to-one matching must be explicit")
    return _filtered(name, pairs, keep=0)


def _combine(name: str, left: Value, right: Value, modifier: Any) -> Vector:
    if isinstance(left, float) or isinstance(right, float):
        raise Unsupported("a set operation with a number")
    if name == "or":
        known = {_key(labels, modifier) for labels in left}
        return left | {k: v for k, v in right.items() if _key(k, modifier) not in known}
    known = {_key(labels, modifier) for labels in right}
    return {k: v for k, v in left.items() if (_key(k, modifier) in known) == (name == "and")}


def _key(labels: Labels, modifier: Any) -> Labels:
    """Return the labels by which two sides of an operation match."""
    matching = None if modifier is None else modifier.matching
    if matching is None:
        return _without_name(labels)
    if matching.type == promql.LabelModifierType.Include:
        return _only(labels, set(matching.labels))
    return frozenset(one for one in labels if one[0] not in {_NAME, *matching.labels})


def _only(labels: Labels, kept: set[str]) -> Labels:
    return frozenset(one for one in labels if one[0] in kept)


def _without_name(labels: Labels) -> Labels:
    return frozenset(one for one in labels if one[0] != _NAME)


def _matches(matcher: Any, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case promql.MatchOp.Equal:
            return bool(value == matcher.value)
        case promql.MatchOp.NotEqual:
            return bool(value != matcher.value)
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
        case promql.MatchOp.NotRe:
            return re.fullmatch(matcher.value, value) is None
    raise Unsupported(str(matcher.op))


def _equalities(selector: Any) -> Labels:
    """Return the labels of `absent`: those that its selector states."""
    if not isinstance(selector, promql.VectorSelector):
        return frozenset()
    stated = [m for m in selector.matchers.matchers if m.op == promql.MatchOp.Equal]
    return frozenset((m.name, m.value) for m in stated)
