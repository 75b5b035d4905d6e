// The cluster at a glance: what is wrong, its controller, brokers, partitions and rates.

import { html } from "../lib/dom.js";
import { bytes, count, duration, plural, rate, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { findingsOf } from "../store/findings.js";
import { health } from "../store/health.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { rates, ratesOf } from "../store/rates.js";
import { Badge, Stat } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Elsewhere } from "../components/elsewhere.js";
import { Notice } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { SERVICE } from "../lib/site.js";

export function Overview() {
  drawn.value;
  const failed = usePolled(may("list_failed_brokers") ? null : "/v1/failed-brokers", 3_000);
  const brokers = usePolled("/v1/brokers", 5_000);
  const ready = usePolled("/readyz", 10_000);
  const found = health();
  const findings = findingsOf({
    cluster, health: found, failed: failed.data, brokers: brokers.data?.brokers,
    // A process that is not ready answers 503, with the reasons in its body.
    ready: ready.error?.body?.reasons ? ready.error.body : ready.data,
  });
  return html`<${Page} title="Overview" badge=${html`<${Verdict} findings=${findings} />`}>
    <${Findings} findings=${findings} />
    <${Figures} found=${found} />
    <${Unhealthy} found=${found} />
    <${Brokers} found=${found} registered=${brokers.data?.brokers ?? []} failed=${failed.data?.brokers ?? []} />
    <${Traffic} />
  <//>`;
}

function Verdict({ findings }) {
  if (!cluster.version) return html`<${Badge}>loading<//>`;
  if (!findings.length) return html`<${Badge} tone="good">healthy<//>`;
  const bad = findings.filter((one) => one.tone === "bad").length;
  return html`<${Badge} tone=${bad ? "bad" : "warn"}>${plural(findings.length, "finding")}<//>`;
}

const Findings = ({ findings }) => findings.length > 0 && html`<section aria-label="Findings" class="form">
  ${findings.slice(0, 8).map((one) => html`<${Notice} tone=${one.tone} title=${one.what}>
    <p>${one.advice} ${one.to && html`<${Link} to=${one.to}>Show them<//>`}</p>
    ${one.id && html`<p class="more"><code>${one.id}</code>, as in <code>leadline doctor</code>: docs/runbooks.md has a section of that name.</p>`}<//>`)}
  ${findings.length > 8 && html`<p class="muted">… and ${plural(findings.length - 8, "other finding")}</p>`}</section>`;

function Figures({ found }) {
  const { controller } = cluster;
  const live = cluster.brokers.size;
  const known = found.brokers.size;
  const { produced, fetched, why } = rates.value;
  return html`<dl class="stats">
    <${Stat} name="Active controller" tone=${cluster.version && !controller ? "bad" : undefined}
      more=${controller && html`epoch ${count(controller.epoch)}`}>${controller ? html`<a class="name" href=${`${controller.url}/ui`}>controller ${controller.id}</a>` : "none"}<//>
    <${Stat} name="Live brokers" tone=${live < known ? "bad" : undefined} more=${live < known && `of ${count(known)} with replicas`}>${count(live)}<//>
    <${Stat} name="Partitions" more=${plural(cluster.topics.size, "topic")}>${count(found.partitions)}<//>
    <${Stat} name="Without a leader" tone=${found.offline.length ? "bad" : undefined}>${count(found.offline.length)}<//>
    <${Stat} name="Under-replicated" tone=${found.under.length ? "warn" : undefined}>${count(found.under.length)}<//>
    ${!why && html`<${Stat} name="Produced">${rate(produced.at(-1))}<//><${Stat} name="Fetched">${rate(fetched.at(-1))}<//>`}
  </dl>`;
}

function Traffic() {
  const { times, produced, fetched, missing, why } = rates.value;
  return html`<${Card} title="Rates">
    ${SERVICE !== "broker" ? html`<${Elsewhere} what="Rates" />` : why ? html`<p class="muted">${why}</p>` : html`
      <${Chart} title="Bytes per second, all brokers" times=${times} format=${rate} series=${[
        { label: "Produced", values: produced, colour: "--chart-1" },
        { label: "Fetched", values: fetched, colour: "--chart-2" },
      ]} />
      <p class="muted">Means over the load window of each broker, since this page was opened.${missing.length > 0 && ` No answer from broker ${missing.join(", ")}.`}</p>`}
  <//>`;
}

function Brokers({ found, registered, failed }) {
  const about = new Map(registered.map((one) => [one.id, one]));
  const failures = new Map(failed.map((one) => [one.id, one]));
  const ids = [...new Set([...found.brokers.keys(), ...failures.keys()])].sort((a, b) => a - b);
  const rows = ids.map((id) => ({
    leaders: 0, replicas: 0, behind: 0, ...found.brokers.get(id), id, live: cluster.brokers.has(id),
    rack: cluster.brokers.get(id)?.rack ?? null, url: cluster.brokers.get(id)?.url,
    about: about.get(id), failure: failures.get(id), rates: ratesOf(id),
  }));
  return html`<${Card} title="Brokers"><${Table} caption="Brokers" rows=${rows} rowKey=${(row) => row.id} noun="broker" columns=${COLUMNS} empty="No broker has registered." /><//>`;
}

const COLUMNS = [
  { title: "Broker", header: true, sort: (row) => row.id, cell: (row) => html`<${Link} to=${`/brokers/${row.id}`}>${row.id}<//>` },
  { title: "State", sort: (row) => (row.live ? 1 : 0), cell: (row) => html`<${BrokerState} row=${row} />` },
  { title: "Rack", sort: (row) => row.rack ?? "", cell: (row) => row.rack ?? "–" },
  { title: "Leaders", number: true, sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
  { title: "Replicas", number: true, sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
  { title: "Out of sync", number: true, sort: (row) => row.behind, cell: (row) => count(row.behind) },
  { title: "Produced", number: true, sort: (row) => row.rates?.produced ?? -1, cell: (row) => rate(row.rates?.produced) },
  { title: "Fetched", number: true, sort: (row) => row.rates?.fetched ?? -1, cell: (row) => rate(row.rates?.fetched) },
  { title: "Disk free", number: true, sort: (row) => row.rates?.load.disk_free_bytes ?? -1, cell: (row) => bytes(row.rates?.load.disk_free_bytes) },
  { title: "Release", sort: (row) => row.about?.release ?? "", cell: (row) => row.about?.release || "–" },
];

/** Live or down; and what is being done about a broker that is down. */
function BrokerState({ row }) {
  if (row.live) return html`<${Badge} tone="good">live<//>`;
  const { failure } = row;
  if (!failure) return html`<${Badge} tone="bad">down<//>`;
  return html`<${Badge} tone=${failure.state === "healed" ? "warn" : "bad"}>down, ${failure.state}<//> <span class="muted">${doing(failure)}</span>`;
}

function doing(failure) {
  if (failure.state === "healing") return `${count(failure.partitions_moved)} of ${plural(failure.partitions_moved + failure.partitions, "partition")} healed`;
  if (failure.due_at) return `healing starts in ${duration(Math.max(0, failure.due_at - Date.now()))}`;
  if (failure.waits_for) return failure.waits_for;
  return failure.failed_at ? `since ${time(failure.failed_at)}` : "";
}

const PARTITION_COLUMNS = [
  { title: "Partition", header: true, sort: (one) => one.topic, cell: ({ topic, row }) => html`<${Link} to=${`/topics/${encodeURIComponent(topic)}/partitions/${row[0]}`}>${topic}-${row[0]}<//>` },
  { title: "State", cell: ({ row }) => (row[1] < 0 ? html`<${Badge} tone="bad">no leader<//>` : html`<${Badge} tone="warn">under-replicated<//>`) },
  { title: "Leader", number: true, sort: ({ row }) => row[1], cell: ({ row }) => (row[1] < 0 ? "none" : row[1]) },
  { title: "ISR", cell: ({ row }) => row[3].join(", ") },
  { title: "Replicas", cell: ({ row }) => row[4].join(", ") },
];

function Unhealthy({ found }) {
  const rows = [...found.offline, ...found.under.filter(({ row }) => row[1] >= 0)];
  if (!rows.length) return null;
  return html`<${Card} title="Partitions that need attention"><${Table} caption="Partitions without a leader, and under-replicated ones"
    rows=${rows} rowKey=${({ topic, row }) => `${topic}-${row[0]}`} filter=${({ topic, row }) => `${topic}-${row[0]}`} noun="partition" columns=${PARTITION_COLUMNS} height="22rem" /><//>`;
}
