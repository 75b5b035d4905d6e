"""The evaluator of the tests computes what Prometheus computes.

The expected values are those of `promtool test rules` (Prometheus 2.42) for the same series, but
for that of `unless on`, which follows from the documentation of the operator.
"""

import math

import promql_parser
import pytest

from tests.support.promql.evaluator import Evaluator, Unsupported
from tests.support.promql.scrapes import Point, Scrapes, Target

SERIES = {
    'c{i="a",j="x"}': "0 3 6 9 2 5 8 11 14 17 20",
    'c{i="b",j="x"}': "_ _ _ _ _ 100 104 108 _ 116 120",
    'g{i="a"}': "5 4 3 8 9 1 2 7 6 4 10",
    'g{i="b"}': "1 1 1 1 1 1 1 1 1 1 1",
    'h_bucket{i="a",le="0.1"}': "0 1 2 3 4 5 6 7 8 9 10",
    'h_bucket{i="a",le="1"}': "0 3 6 9 12 15 18 21 24 27 30",
    'h_bucket{i="a",le="+Inf"}': "0 4 8 12 16 20 24 28 32 36 40",
}
INTERVAL_S = 15.0
AT_S = 150.0
COMPUTED = {
    "increase(c[1m])": {"a": 12, "b": 16},
    "rate(c[2m])": {"a": 0.19166666666666665, "b": 0.1875},
    "increase(c[5m])": {"a": 29, "b": 22.5},
    "delta(g[1m])": {"a": 8, "b": 0},
    "sum by (j) (rate(c[2m]))": {"": 0.37916666666666665},
    "histogram_quantile(0.9, sum by (i, le) (rate(h_bucket[2m])))": {"a": 1},
    "histogram_quantile(0.1, rate(h_bucket[2m]))": {"a": 0.04},
    "g > 5": {"a": 10},
    "g / c": {},
    "c and on (i) g > 5": {"a": 20},
    "c unless g": {"a": 20, "b": 120},
    "c unless on (i) g": {},
    'absent(nothing{i="z"})': {"z": 1},
    "absent(g)": {},
    "sum(g) - 1": {"": 10},
    "max by (i) (c) == 20": {"a": 20},
    "2 * 3 < c": {"a": 20, "b": 120},
    "count(c)": {"": 2},
    "avg(g)": {"": 5.5},
    "sum by (i) (g) / sum by (i) (c) < 0.4": {"b": 0.008333333333333333},
    "time() - g": {"a": 140, "b": 149},
}


@pytest.fixture(name="evaluator")
def stored() -> Evaluator:
    scrapes = Scrapes()
    for series, values in SERIES.items():
        selector = promql_parser.parse(series)
        assert isinstance(selector, promql_parser.VectorSelector)
        labels = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
        points = [
            Point(index * INTERVAL_S, float(value))
            for index, value in enumerate(values.split())
            if value != "_"
        ]
        scrapes.add_series(selector.name or "", labels, points)
    return Evaluator(scrapes, AT_S)


@pytest.mark.parametrize("expression", COMPUTED)
def test_it_computes_what_prometheus_does(evaluator: Evaluator, expression: str) -> None:
    found = evaluator.firing(expression)

    by_i = {dict(labels).get("i", ""): value for labels, value in found.items()}
    assert by_i == pytest.approx(COMPUTED[expression])


def test_or_adds_what_the_first_lacks(evaluator: Evaluator) -> None:
    found = evaluator.firing("g > 5 or c > 100")

    assert sorted(found.values()) == [10, 120]


def test_an_empty_histogram_has_no_quantile(evaluator: Evaluator) -> None:
    (found,) = evaluator.firing("histogram_quantile(0.9, h_bucket - h_bucket)").values()

    assert math.isnan(found)


@pytest.mark.parametrize(
    "expression", ["g offset 5m", "sum without (i) (g)", "topk(1, g)", "g > bool 5", "ceil(g)"]
)
def test_what_it_does_not_know_it_refuses(evaluator: Evaluator, expression: str) -> None:
    with pytest.raises(Unsupported):
        evaluator.evaluate(expression)


def test_a_target_that_does_not_answer_is_down_and_its_series_end() -> None:
    scrapes, target = Scrapes(), Target("leadline-broker", "one:1")
    scrapes.add(0.0, target, "leaders 3.0\n")
    scrapes.add(15.0, target, None)

    assert Evaluator(scrapes, 10.0).evaluate("sum(leaders)") == {frozenset(): 3.0}
    assert Evaluator(scrapes, 16.0).evaluate("leaders") == {}
    assert list(Evaluator(scrapes, 16.0).firing("up == 0").values()) == [0.0]
