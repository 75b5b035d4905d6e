// One broker: how it is registered, its load, whether it can stop, its replicas, its settings.

import { html, useRef } from "../lib/dom.js";
import { bytes, count, duration, plural, rate, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, derived, drawn } from "../store/cluster.js";
import { health, roleOf } from "../store/health.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { rates, ratesOf } from "../store/rates.js";
import { ActionButton } from "../components/action_form.js";
import { Badge, Stat } from "../components/badge.js";
import { Notice, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { drain, forget } from "./broker_actions.js";
import { Settings, ofBroker } from "./settings.js";

const TABS = [
  ["", "State", State],
  ["replicas", "Replicas", Replicas],
  ["settings", "Settings", ({ id }) => html`<${Settings} owner=${ofBroker(id)} />`],
];

/** @param {{broker: string, tab?: string}} props */
export function Broker({ broker, tab = "" }) {
  drawn.value;
  const id = /^\d{1,9}$/.test(broker) ? Number(broker) : -1;
  const failed = usePolled(may("list_failed_brokers") ? null : "/v1/failed-brokers", 3_000);
  const failure = failed.data?.brokers.find((one) => one.id === id);
  const live = cluster.brokers.has(id);
  const shown = TABS.find(([path]) => path === tab);
  const isKnown = live || failure || health().brokers.has(id);
  const seen = useRef(false);
  seen.current ||= Boolean(isKnown);
  // Of a broker that was just forgotten the action stays, as it shows what became of it.
  const actions = seen.current && (live ? html`<${ActionButton} key="drain" action=${drain(id)}>Drain …<//>` : html`<${ActionButton} key="forget" action=${forget(id)}>Forget …<//>`);
  if (!isKnown || !shown) {
    return html`<${Page} title=${`Broker ${broker}`} actions=${actions}>${cluster.version > 0 && html`<${Notice} tone="warn" title=${isKnown ? "There is no such page" : "There is no such broker"}><p><${Link} to="/brokers">All brokers<//></p><//>`}<//>`;
  }
  const base = `/brokers/${id}`;
  return html`<${Page} title=${`Broker ${id}`} actions=${actions} badge=${live ? html`<${Badge} tone="good">live<//>` : html`<${Badge} tone="bad">down${failure ? `, ${failure.state}` : ""}<//>`}
      about=${live && html`At <a href=${`${cluster.brokers.get(id).url}/ui`}>${cluster.brokers.get(id).url}</a>`}>
    <nav class="tabs" aria-label="Parts of the broker">${TABS.map(([path, title]) => html`<${Link} to=${path ? `${base}/${path}` : base} current=${path === tab}>${title}<//>`)}</nav>
    <${shown[2]} key=${tab} id=${id} live=${live} failure=${failure} />
  <//>`;
}

function State({ id, live, failure }) {
  rates.value;
  const numbers = health().brokers.get(id) ?? { leaders: 0, replicas: 0, behind: 0 };
  const found = ratesOf(id);
  return html`<dl class="stats">
      <${Stat} name="Leads">${count(numbers.leaders)}<//>
      <${Stat} name="Follows">${count(numbers.replicas - numbers.leaders)}<//>
      <${Stat} name="Out of sync" tone=${numbers.behind ? "warn" : undefined}>${count(numbers.behind)}<//>
      <${Stat} name="Produced">${rate(found?.produced)}<//>
      <${Stat} name="Fetched">${rate(found?.fetched)}<//>
      <${Stat} name="Logs" more=${found && `${bytes(found.load.disk_free_bytes)} of the disk free`}>${bytes(found?.load.size_bytes)}<//></dl>
    ${failure && html`<${Failed} failure=${failure} />`}
    ${live && html`<div class="columns"><${Registration} id=${id} /><${CanStop} id=${id} /></div>`}`;
}

function Failed({ failure }) {
  return html`<${Notice} tone="bad" title=${`Down: ${failure.state}`}>
    <p>${failure.failed_at ? `Since ${time(failure.failed_at)}. ` : ""}${plural(failure.partitions, "partition")} with a replica here, ${count(failure.partitions_moved)} moved away.
      ${failure.due_at ? ` Healing starts in ${duration(Math.max(0, failure.due_at - Date.now()))}.` : ""} ${failure.waits_for ? `It waits: ${failure.waits_for}.` : ""}</p><//>`;
}

function Registration({ id }) {
  const found = usePolled(`/v1/brokers/${id}`, 5_000);
  const one = found.data;
  return html`<${Card} title="Registration">${!one ? html`<${Waiting} of=${found} />` : html`<dl class="facts">
    <div><dt>Address</dt><dd class="mono">${one.host}:${one.port}</dd></div>
    <div><dt>Rack</dt><dd>${one.rack ?? "none"}</dd></div>
    <div><dt>Release</dt><dd>${one.release || "unknown"}</dd></div>
    <div><dt>Protocol versions</dt><dd>${one.oldest_protocol} to ${one.newest_protocol}</dd></div>
    <div><dt>Incarnation</dt><dd>${count(one.incarnation)}</dd></div>
    <div><dt>Log directory</dt><dd class="mono">${one.directory_id}</dd></div>
    <div><dt>Directory epoch</dt><dd>${count(one.directory_epoch)}</dd></div>
    ${one.misplaced > 0 && html`<div><dt>Misplaced</dt><dd><${Badge} tone="bad">${plural(one.misplaced, "partition")}<//></dd></div>`}</dl>`}<//>`;
}

const RISKS = {
  no_successor: "would lose their leader: no other replica is in sync",
  offline: "have no leader, and wait for this broker",
  below_min_insync: "would refuse acks=all: too few replicas would be in sync",
  under_replicated: "are under-replicated already",
};

function CanStop({ id }) {
  const why = may("can_stop");
  const found = usePolled(why ? null : `/v1/brokers/${id}/can-stop`, 5_000);
  const answer = found.data;
  return html`<${Card} title="Can it stop now" end=${answer && html`<${Badge} tone=${answer.can_stop ? "good" : "bad"}>${answer.can_stop ? "it can stop" : "it should not stop"}<//>`}>
    ${why ? html`<p class="muted">${why}</p>` : !answer ? html`<${Waiting} of=${found} />` : answer.reasons.length === 0 ? html`<p>Nothing speaks against it.</p>` : html`<ul>${answer.reasons.map((one) => html`<li>${plural(one.total, "partition")} ${RISKS[one.reason] ?? one.reason}: ${one.partitions.slice(0, 8).map(({ topic, partition }, i) => html`${i > 0 && ", "}<${Link} to=${`/topics/${encodeURIComponent(topic)}/partitions/${partition}`}>${topic}-${partition}<//>`)}${one.total > 8 && " …"}</li>`)}</ul>`}<//>`;
}

/** All partitions with a replica, by broker: [{topic, row}]. */
const byBroker = derived((data) => {
  const found = new Map();
  for (const [topic, { rows }] of data.topics) {
    for (const row of rows.values()) {
      for (const id of row[4]) {
        if (!found.has(id)) found.set(id, []);
        found.get(id).push({ topic, row });
      }
    }
  }
  return found;
});

const NONE = [];

function Replicas({ id, live }) {
  return html`<${Table} caption=${`Replicas of broker ${id}`} rows=${byBroker().get(id) ?? NONE} rowKey=${keyOf} filter=${(one) => `${keyOf(one)} ${roleOf(one.row, id, live)}`} noun="replica" empty="It has no replicas." columns=${[
    { title: "Partition", header: true, sort: (one) => one.topic, cell: (one) => html`<${Link} to=${`/topics/${encodeURIComponent(one.topic)}/partitions/${one.row[0]}`}>${keyOf(one)}<//>` },
    { title: "Role", sort: (one) => roleOf(one.row, id, live), cell: (one) => html`<${Role} role=${roleOf(one.row, id, live)} />` },
    { title: "Leader", number: true, sort: ({ row }) => row[1], cell: ({ row }) => (row[1] < 0 ? "none" : row[1]) },
    { title: "ISR", cell: ({ row }) => row[3].join(", ") },
    { title: "Replicas", cell: ({ row }) => row[4].join(", ") },
  ]} />`;
}

const keyOf = ({ topic, row }) => `${topic}-${row[0]}`;
const TONES = { leader: "info", "in sync": "good", "out of sync": "warn", down: "bad" };
const Role = ({ role }) => html`<${Badge} tone=${TONES[role]}>${role === "in sync" ? "follower in sync" : role}<//>`;
