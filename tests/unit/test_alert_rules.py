"""The alert rules and the dashboard name metrics that exist, and each alert has its runbook.

What exists is what docs/metrics.md lists, which `tests/integration/test_metrics.py` compares with
what running services serve.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its types are another package

from leadline_cli.commands import doctor
from leadline_cli.main import SUBCOMMANDS, load
from leadline_cli.problems import Problem
from tests.support.promql.rules import (
    ROOT,
    RULES_FILE,
    RUNBOOKS_FILE,
    SEVERITIES,
    Rule,
    documented,
    expressions_of,
    headings,
    labels_by_name,
    load_dashboard,
    load_rules,
    problems_of_expression,
    problems_of_rule,
)

DOCUMENTED = {
    **labels_by_name(chain.from_iterable(documented().values())),
    "process_open_fds": frozenset[str](),
    "process_max_fds": frozenset[str](),
}
RUNBOOKS = RUNBOOKS_FILE.read_text(encoding="utf-8")
ANCHORS = headings(RUNBOOKS)
RULES = load_rules()
UNITS = {"none", "s", "bytes", "Bps", "ops", "reqps"}
COLUMNS = 24


def test_every_rule_can_be_evaluated_and_has_a_runbook() -> None:
    problems = {rule.name: list(problems_of_rule(rule, DOCUMENTED, ANCHORS)) for rule in RULES}

    assert {name: found for name, found in problems.items() if found} == {}
    assert {rule.severity for rule in RULES} == set(SEVERITIES)
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))


GOOD = Rule(
    "LeadlineGood",
    "max by (cluster) (leadline_controller_offline_partitions) > 0",
    "critical",
    "1m",
    {
        "summary": "s",
        "description": "{{ $labels.cluster }}",
        "runbook_url": "docs/runbooks.md#offline-partitions",
    },
)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"expression": "max by (cluster) (leadline_offline) > 0"}, "unknown metric"),
        ({"expression": "max by (cluster (leadline_replicas) > 0"}, "syntax"),
        ({"expression": 'leadline_replicas{topic="a"} > 0'}, "no label topic"),
        ({"expression": "sum by (cluster, topic) (leadline_replicas) > 0"}, "no label topic"),
        ({"expression": "sum(leadline_replicas) > 0"}, "the alert has no label cluster"),
        ({"severity": "urgent"}, "severity"),
        ({"hold": "soon"}, "for: soon"),
        ({"annotations": {}}, "no summary"),
        (
            {"annotations": {**GOOD.annotations, "runbook_url": "docs/runbooks.md#nowhere"}},
            "no runbook",
        ),
    ],
)
def test_a_broken_rule_is_found(broken: dict[str, Any], problem: str) -> None:
    assert list(problems_of_rule(GOOD, DOCUMENTED, ANCHORS)) == []

    found = list(problems_of_rule(replace(GOOD, **broken), DOCUMENTED, ANCHORS))

    assert any(problem in one for one in found), found


def test_every_runbook_belongs_to_an_alert_or_a_finding_and_each_of_these_has_one() -> None:
    sections = headings("\n".join(re.findall(r"^## .*$", RUNBOOKS, re.MULTILINE)))

    named = {rule.annotations["runbook_url"].partition("#")[2] for rule in RULES}
    assert sections == named | {problem.value for problem in Problem}


def test_every_problem_of_the_doctor_is_one_that_it_looks_for() -> None:
    used = re.findall(r"\bProblem\.([A-Z_]+)", Path(doctor.__file__).read_text(encoding="utf-8"))
    assert set(used) == {problem.name for problem in Problem}


@pytest.mark.parametrize("problem", Problem)
def test_the_runbook_of_a_problem_is_a_section_of_the_page(problem: Problem) -> None:
    page, _, anchor = problem.runbook.partition("#")
    assert ROOT / page == RUNBOOKS_FILE
    assert anchor in ANCHORS


def test_runbooks_name_commands_that_exist_and_metrics_that_exist() -> None:
    text = " ".join(RUNBOOKS.split())
    commands: set[str] = set(re.findall(r"`leadline ([^`]*)`", text))
    assert commands
    for command in commands:
        _resolve(command)
    for name in re.findall(r"\bleadline_\w+", text):
        assert name in DOCUMENTED or f"{name}_bucket" in DOCUMENTED, name


def _resolve(line: str) -> None:
    """Find the command and each option of a line."""
    first, *words = line.split()
    assert first in SUBCOMMANDS, line
    found: Any = load(first)
    while words and getattr(found, "commands", None):
        assert words[0] in found.commands, line
        found = found.commands[words.pop(0)]
    options = {name for each in found.params for name in each.opts}
    for word in words:
        assert not word.startswith("-") or word in options, line


def test_the_dashboard_names_metrics_and_labels_that_exist() -> None:
    problems = [
        f"{expression}: {problem}"
        for expression in expressions_of(load_dashboard())
        for problem in problems_of_expression(expression, DOCUMENTED)
    ]

    assert problems == []


def test_the_dashboard_can_be_loaded_into_any_grafana() -> None:
    dashboard = load_dashboard()
    panels, variables = dashboard["panels"], dashboard["templating"]["list"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    assert [variable["name"] for variable in variables] == [
        "datasource",
        "cluster",
        "broker",
        "topic",
    ]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        if panel["type"] == "row":
            continue
        # The address of a data source differs in every installation: only the variable knows it.
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(references) == len(set(references))
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= {
                "__rate_interval",
                *(variable["name"] for variable in variables),
            }
    for variable in variables[1:]:
        name, label = re.findall(r"label_values\((\w+).*?, (\w+)\)", variable["definition"])[0]
        assert label in DOCUMENTED[name] | {"cluster", "instance"}


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in load_dashboard()["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                taken[x, y] = panel["title"]


def test_the_scrape_configuration_has_the_names_that_the_rules_use() -> None:
    text = (RULES_FILE.parent / "prometheus.yml").read_text(encoding="utf-8")
    configuration = yaml.safe_load(text)

    assert configuration["rule_files"] == [RULES_FILE.name]
    jobs = {job["job_name"]: job["static_configs"] for job in configuration["scrape_configs"]}
    assert set(jobs) == {"leadline-controller", "leadline-broker", "leadline-coordinator"}
    assert all("cluster" in one["labels"] for targets in jobs.values() for one in targets)
