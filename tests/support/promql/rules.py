"""The alert rules and the dashboard as files, and what can be wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import yaml  # type: ignore[import-untyped]  # its types are another package

ROOT: Final = Path(__file__).resolve().parents[3]
RULES_FILE: Final = ROOT / "deploy/prometheus/leadline-alerts.yml"
DASHBOARD_FILE: Final = ROOT / "deploy/grafana/leadline.json"
METRICS_FILE: Final = ROOT / "docs/metrics.md"
RUNBOOKS_FILE: Final = ROOT / "docs/runbooks.md"
TARGET_LABELS: Final = frozenset({"job", "instance", "cluster"})
"""The labels that the scrape configuration adds to every sample."""
SEVERITIES: Final = ("critical", "warning", "info")
_LABEL_USE: Final = re.compile(r"\$labels\.(\w+)")
_DURATION: Final = re.compile(r"\d+[smh]")

_ROW: Final = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)

Known = Mapping[str, frozenset[str]]
"""The labels of each metric, by its name; those of the scrape configuration are left out."""


@dataclass(frozen=True)
class Rule:
    """One alert rule."""

    name: str
    expression: str
    severity: str
    hold: str
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Documented:
    """A metric as docs/metrics.md lists it."""

    name: str
    kind: str
    labels: frozenset[str]


def documented() -> dict[str, list[Documented]]:
    """Return the metrics that docs/metrics.md lists, by its sections."""
    sections = METRICS_FILE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        section.partition("\n")[0]: [
            Documented(name, kind, frozenset(re.findall(r"`(\w+)`", labels)))
            for name, kind, labels in _ROW.findall(section)
        ]
        for section in sections
    }


def load_rules(path: Path = RULES_FILE) -> list[Rule]:
    """Return the rules of a file."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [
        Rule(
            row["alert"],
            row["expr"],
            row["labels"]["severity"],
            row.get("for", "0s"),
            row["annotations"],
        )
        for group in document["groups"]
        for row in group["rules"]
    ]


def load_dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    document: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text(encoding="utf-8"))
    return document


def expressions_of(dashboard: Mapping[str, Any]) -> list[str]:
    """Return the expressions of all panels, with every variable at *All*."""
    return [
        target["expr"]
        .replace("$__rate_interval", "5m")
        .replace("$cluster", ".*")
        .replace("$broker", ".*")
        .replace("$topic", ".*")
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def headings(page: str) -> set[str]:
    """Return the anchors of a page's sections."""
    titles: list[str] = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def problems_of_rule(rule: Rule, known: Known, anchors: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with a rule."""
    yield from problems_of_expression(rule.expression, known)
    if rule.severity not in SEVERITIES:
        yield f"severity {rule.severity}"
    if not _DURATION.fullmatch(rule.hold):
        yield f"for: {rule.hold}"
    missing = {"summary", "description", "runbook_url"} - rule.annotations.keys()
    yield from (f"no {name}" for name in sorted(missing))
    page, _, anchor = rule.annotations.get("runbook_url", "").partition("#")
    if not (ROOT / page).is_file() or anchor not in anchors:
        yield f"no runbook at {page}#{anchor}"
    try:
        present = _output_labels(promql.parse(rule.expression), known)
    except ValueError:
        return
    for text in rule.annotations.values():
        for label in _LABEL_USE.findall(text):
            if label not in present:
                yield f"the alert has no label {label}"


def problems_of_expression(expression: str, known: Known) -> Iterator[str]:
    """Yield what is wrong with an expression: its syntax, an unknown metric, an unknown label."""
    try:
        tree = promql.parse(expression)
    except ValueError as error:
        yield f"syntax: {error}"
        return
    for selector in selectors(tree):
        name = selector.name or ""
        if name not in known:
            yield f"unknown metric {name}"
            continue
        labels = known[name] | TARGET_LABELS
        for matcher in selector.matchers.matchers:
            if matcher.name not in labels:
                yield f"{name} has no label {matcher.name}"
    for node in nodes(tree):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            present = _output_labels(node.expr, known)
            for label in node.modifier.labels:
                if label not in present:
                    yield f"no label {label} to aggregate by"


def nodes(node: Any) -> Iterator[Any]:
    """Yield a node of a syntax tree and everything below it."""
    yield node
    for child in _children(node):
        yield from nodes(child)


def selectors(tree: Any) -> list[Any]:
    """Return the selectors of an expression."""
    return [node for node in nodes(tree) if isinstance(node, promql.VectorSelector)]


def _children(node: Any) -> list[Any]:
    match node:
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return [node.expr]
        case promql.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql.Call():
            return list(node.args)
        case promql.MatrixSelector():
            return [node.vector_selector]
    return []


def _output_labels(node: Any, known: Known) -> frozenset[str]:
    """Return the labels that a result may have; those of an unknown metric are reported before."""
    match node:
        case promql.VectorSelector():
            return known.get(node.name or "", frozenset()) | TARGET_LABELS
        case promql.AggregateExpr():
            return frozenset(node.modifier.labels if node.modifier is not None else ())
        case promql.BinaryExpr() if str(node.op) == "or":
            return _output_labels(node.lhs, known) | _output_labels(node.rhs, known)
        case promql.BinaryExpr() if isinstance(node.lhs, promql.NumberLiteral):
            return _output_labels(node.rhs, known)
        case promql.BinaryExpr():
            return _output_labels(node.lhs, known)
    found = [_output_labels(child, known) for child in _children(node)]
    return frozenset().union(*found)


def labels_by_name(metrics: Iterable[Documented]) -> dict[str, frozenset[str]]:
    """Return the labels of each metric by name; a histogram has three names."""
    known: dict[str, frozenset[str]] = {"up": frozenset()}
    for metric in metrics:
        if metric.kind != "histogram":
            known[metric.name] = metric.labels
            continue
        known |= {metric.name + suffix: metric.labels for suffix in ("_sum", "_count")}
        known[f"{metric.name}_bucket"] = metric.labels | {"le"}
    return known
