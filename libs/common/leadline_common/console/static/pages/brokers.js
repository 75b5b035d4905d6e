// The brokers: those that are live, those that replicas are assigned to, and those that failed.

import { html } from "../lib/dom.js";
import { bytes, count, rate } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { health } from "../store/health.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { rates, ratesOf } from "../store/rates.js";
import { Badge } from "../components/badge.js";
import { Page } from "../components/page.js";
import { Table } from "../components/table.js";

export function Brokers() {
  drawn.value;
  rates.value;
  const registered = usePolled("/v1/brokers", 5_000);
  const failed = usePolled(may("list_failed_brokers") ? null : "/v1/failed-brokers", 3_000);
  const about = new Map((registered.data?.brokers ?? []).map((one) => [one.id, one]));
  const failures = new Map((failed.data?.brokers ?? []).map((one) => [one.id, one]));
  const found = health().brokers;
  const ids = [...new Set([...found.keys(), ...failures.keys()])].sort((a, b) => a - b);
  const rows = ids.map((id) => ({ leaders: 0, replicas: 0, behind: 0, ...found.get(id), id, live: cluster.brokers.has(id), ...cluster.brokers.get(id), about: about.get(id), failure: failures.get(id), rates: ratesOf(id) }));
  return html`<${Page} title="Brokers" about="Live brokers, and those that are down.">
    <${Table} caption="Brokers" rows=${rows} rowKey=${(row) => row.id} noun="broker" columns=${COLUMNS} filter=${(row) => `${row.id} ${row.rack ?? ""} ${row.url ?? ""} ${row.live ? "live" : "down"}`} empty="No broker has registered." /><//>`;
}

const COLUMNS = [
  { title: "Broker", header: true, class: "narrow", sort: (row) => row.id, cell: (row) => html`<${Link} to=${`/brokers/${row.id}`}>Broker ${row.id}<//>` },
  { title: "State", sort: (row) => (row.live ? 1 : 0), cell: (row) => (row.live ? html`<${Badge} tone="good">live<//>` : html`<${Badge} tone="bad">down${row.failure ? `, ${row.failure.state}` : ""}<//>`) },
  { title: "Rack", sort: (row) => row.rack ?? "", cell: (row) => row.rack ?? "–" },
  { title: "Address", sort: (row) => row.url ?? "", cell: (row) => (row.url ? html`<span class="mono">${row.url}</span>` : "–") },
  { title: "Release", sort: (row) => row.about?.release ?? "", cell: (row) => row.about?.release || "–" },
  { title: "Leaders", number: true, sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
  { title: "Replicas", number: true, sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
  { title: "Out of sync", number: true, sort: (row) => row.behind, cell: (row) => count(row.behind) },
  { title: "Produced", number: true, sort: (row) => row.rates?.produced ?? -1, cell: (row) => rate(row.rates?.produced) },
  { title: "Fetched", number: true, sort: (row) => row.rates?.fetched ?? -1, cell: (row) => rate(row.rates?.fetched) },
  { title: "Disk free", number: true, sort: (row) => row.rates?.load.disk_free_bytes ?? -1, cell: (row) => bytes(row.rates?.load.disk_free_bytes) },
];
