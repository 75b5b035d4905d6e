// Plans for replicas: make one, see the brokers before and after, apply it. The active controller
// keeps the latest eight; the page's address names the one that is shown.

import { html, signal } from "../lib/dom.js";
import { bytes, count, plural, time } from "../lib/format.js";
import { Link, location, setQuery } from "../lib/router.js";
import { ratesOf } from "../store/rates.js";
import { usePolled } from "../store/polled.js";
import { ActionButton, ActionForm } from "../components/action_form.js";
import { Bars, BarsLegend } from "../components/bars.js";
import { Badge, Stat } from "../components/badge.js";
import { Failure, Notice, Waiting } from "../components/notice.js";
import { Card } from "../components/page.js";
import { Table } from "../components/table.js";
import { applyPlan, planWords } from "./task_actions.js";

/** What was asked for, by the id of the plan: for the command line that does the same. */
const asked = signal(new Map());

const list = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean);
const ids = (text) => (list(text).every((word) => /^\d+$/.test(word)) ? "" : "ids of brokers, such as 1, 2");

function bodyOf(values) {
  const [brokers, exclude, topics] = [list(values.brokers).map(Number), list(values.exclude).map(Number), list(values.topics)];
  return { kind: values.kind, ...(brokers.length ? { brokers } : {}), ...(exclude.length ? { exclude } : {}), ...(topics.length ? { topics } : {}) };
}

const MAKE = {
  operation: "make_plan",
  title: "Make a plan",
  verb: "Make the plan",
  about: "Nothing moves until the plan is applied.",
  safe: true,
  fields: [
    { name: "kind", label: "Goal", type: "select", required: true, options: [
      { value: "balance", label: "balance: equal numbers on all brokers" }, { value: "expand", label: "expand: use new brokers" }, { value: "drain", label: "drain: empty brokers" },
    ] },
    { name: "brokers", label: "Brokers", hint: "Those to balance over, to expand to, or to drain, such as 1, 2",
      check: (text, { kind }) => ids(text) || (kind === "drain" && !list(text).length ? "is needed to drain" : "") },
    { name: "exclude", label: "Brokers that get nothing", check: ids },
    { name: "topics", label: "Topics", hint: "By default all" },
  ],
  request: (values) => ({ method: "POST", path: "/v1/plans", body: bodyOf(values) }),
  cli: (values) => planWords(bodyOf(values)),
  show: (body) => html`<p>${body.partitions.length ? `${plural(body.figures.moves, "replica")} would be copied.` : "There is nothing to move."} It is shown below.</p>`,
  done: (body, values) => {
    asked.value = new Map([...asked.value, [body.id, bodyOf(values)]]);
    setQuery({ plan: body.id });
  },
};

export function Plans() {
  const id = location.value.query.get("plan");
  return html`<${Card} title="Make a plan"><${ActionForm} action=${MAKE} /><//>${id && html`<${Plan} key=${id} id=${id} />`}`;
}

function Plan({ id }) {
  const found = usePolled(`/v1/plans/${encodeURIComponent(id)}`, 3_000);
  if (found.error?.status === 404) {
    return html`<${Notice} tone="warn" title="This plan is no longer kept"><p>The active controller keeps its latest eight plans. Make it again.</p><//>`;
  }
  if (!found.data) return html`<${Waiting} of=${found} />`;
  const plan = { ...found.data, asked: asked.value.get(id) };
  const { figures } = plan;
  return html`<${Card} title=${`Plan: ${plan.kind}`} end=${html`<${ApplyButton} plan=${plan} />`}>
      ${found.error && html`<${Failure} error=${found.error} />`}
      <${PlanState} plan=${plan} />
      <dl class="stats">
        <${Stat} name="Replicas to copy" more=${`at least ${count(figures.least_moves)} for this goal`}>${count(figures.moves)}<//>
        <${Stat} name="Partitions that change">${count(figures.partitions)}<//>
        <${Stat} name="Preferred leaders that change">${count(figures.leader_changes)}<//>
        <${Stat} name="Spread of replicas" more="highest minus lowest">${figures.replica_spread_before} → ${figures.replica_spread_after}<//>
        <${Stat} name="Spread of leaders" more="highest minus lowest">${figures.leader_spread_before} → ${figures.leader_spread_after}<//>
      </dl><//>
    <${Card} title="Brokers before and after" end=${html`<${BarsLegend} />`}><${BrokerBars} plan=${plan} /><//>
    <${Card} title="Moves"><${Table} caption="Partitions that change" rows=${plan.partitions} rowKey=${(row) => `${row.topic}-${row.partition}`} filter=${(row) => `${row.topic}-${row.partition}`}
      noun="partition" columns=${MOVES} empty="Nothing has to move: the brokers are as they should be." height="26rem" /><//>`;
}

function ApplyButton({ plan }) {
  if (plan.stale || !plan.partitions.length) {
    const why = plan.stale ? "The plan is stale: make it again" : "There is nothing to move";
    return html`<button type="button" class="primary" aria-disabled="true" title=${why} aria-description=${why}>Apply the plan …</button>`;
  }
  return html`<${ActionButton} action=${applyPlan(plan)} class="primary">Apply the plan …<//>`;
}

function PlanState({ plan }) {
  const version = html`It was made at ${time(plan.created_at_ms)} for version ${count(plan.version)} of the metadata.`;
  if (plan.tasks.length) {
    return html`<${Notice} tone="good" title="Applied"><p>${version} It goes on as ${plan.tasks.map((id, i) => html`${i > 0 && ", "}<${Link} to=${`/tasks/${id}`}>task ${id}<//>`)}.</p><//>`;
  }
  if (plan.stale) {
    return html`<${Notice} tone="warn" live title="The plan is stale"><p>${version} Since then replicas of its topics or the live brokers have changed, so it cannot be applied. Make it again.</p><//>`;
  }
  return html`<p class="muted">${version}${plan.down.length > 0 && ` Brokers that are down and get nothing: ${plan.down.join(", ")}.`}</p>`;
}

/** The size of each broker now, and an estimate for later from the mean size of a replica on it. */
function sizes(plan) {
  const now = new Map();
  const mean = new Map();
  for (const { broker } of plan.brokers) {
    const load = ratesOf(broker)?.load;
    if (!load) return null;
    now.set(broker, load.size_bytes);
    mean.set(broker, load.replicas ? load.size_bytes / load.replicas : 0);
  }
  const later = new Map(now);
  for (const { current, replicas } of plan.partitions) {
    const size = Math.max(0, ...current.map((id) => mean.get(id) ?? 0));
    for (const id of current) if (!replicas.includes(id)) later.set(id, Math.max(0, (later.get(id) ?? 0) - (mean.get(id) ?? 0)));
    for (const id of replicas) if (!current.includes(id)) later.set(id, (later.get(id) ?? 0) + size);
  }
  return { now, later };
}

function BrokerBars({ plan }) {
  const size = sizes(plan);
  const most = (names) => Math.max(1, ...plan.brokers.flatMap((row) => names.map((name) => row[name])));
  const replicas = most(["replicas_before", "replicas_after"]);
  const leaders = most(["leaders_before", "leaders_after"]);
  const largest = size && Math.max(1, ...size.now.values(), ...size.later.values());
  const columns = [
    { title: "Broker", header: true, sort: (row) => row.broker, cell: (row) => html`${row.broker}${plan.down.includes(row.broker) ? html` <${Badge} tone="bad">down<//>` : ""}` },
    { title: "Replicas", sort: (row) => row.replicas_after, cell: (row) => html`<${Bars} before=${row.replicas_before} after=${row.replicas_after} most=${replicas} format=${count} />` },
    { title: "Preferred leaders", sort: (row) => row.leaders_after, cell: (row) => html`<${Bars} before=${row.leaders_before} after=${row.leaders_after} most=${leaders} format=${count} />` },
    ...(size ? [{ title: "Bytes (after: estimate)", sort: (row) => size.later.get(row.broker), cell: (row) => html`<${Bars} before=${size.now.get(row.broker)} after=${size.later.get(row.broker)} most=${largest} format=${bytes} />` }] : []),
  ];
  return html`<${Table} caption="Replicas, leaders and bytes of brokers, before and after" rows=${plan.brokers} rowKey=${(row) => row.broker} noun="broker" columns=${columns} height="26rem" />
    ${size && html`<p class="muted">Bytes after the moves are estimated from the mean size of a replica on each broker.</p>`}`;
}

const MOVES = [
  { title: "Partition", header: true, sort: (row) => `${row.topic}-${String(row.partition).padStart(9, "0")}`, cell: (row) => html`<${Link} to=${`/topics/${encodeURIComponent(row.topic)}`}>${row.topic}-${row.partition}<//>` },
  { title: "Replicas now", cell: (row) => row.current.join(", ") },
  { title: "Planned", cell: (row) => row.replicas.join(", ") },
  { title: "Copied to", cell: (row) => row.replicas.filter((id) => !row.current.includes(id)).join(", ") || "–" },
  { title: "Removed from", cell: (row) => row.current.filter((id) => !row.replicas.includes(id)).join(", ") || "–" },
  { title: "Preferred leader", cell: (row) => (row.current[0] === row.replicas[0] ? row.replicas[0] : `${row.current[0]} → ${row.replicas[0]}`) },
];
