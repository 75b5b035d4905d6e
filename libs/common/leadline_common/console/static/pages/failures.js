// Brokers that are down with what is done about each, and every failure of the past.

import { html } from "../lib/dom.js";
import { bytes, count, duration, plural, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { usePolled } from "../store/polled.js";
import { ActionButton } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Failure, Notice, Waiting } from "../components/notice.js";
import { Card } from "../components/page.js";
import { Table } from "../components/table.js";
import { forgetBroker } from "./task_actions.js";

const TONES = { healed: "good", returned: "good", cancelled: undefined, healing: "info", partly_healed: "warn", waiting: "bad", failed: "bad" };
const State = ({ state }) => html`<${Badge} tone=${TONES[state]}>${state.replaceAll("_", " ")}<//>`;

export function Failures() {
  const now = usePolled("/v1/failed-brokers", 2_000);
  const past = usePolled("/v1/failed-brokers/history?limit=1000", 5_000);
  return html`
    ${now.data?.suspended && html`<${Notice} tone="bad" title="Self-healing is suspended"><p>More brokers are down than failed.broker.budget.percent allows: a network or a rack may have failed. Healing resumes when fewer are down.</p><//>`}
    <${Card} title="Brokers that are down" end=${now.data && html`<span class="muted">${now.data.interval_ms < 0 ? "Self-healing is off (failed.broker.interval.ms is -1)" : `Healing starts ${duration(now.data.interval_ms)} after a failure`}</span>`}>
      ${now.data && now.error && html`<${Failure} error=${now.error} />`}
      ${now.data ? html`<${Table} caption="Brokers that are down" rows=${now.data.brokers} rowKey=${(row) => row.id} noun="broker" columns=${NOW} empty="No broker is down." height="20rem" />` : html`<${Waiting} of=${now} />`}
    <//>
    <${Card} title="Failures of the past">
      ${past.data && past.error && html`<${Failure} error=${past.error} />`}
      ${past.data ? html`<${Table} caption="Failures of brokers" rows=${past.data.failures} rowKey=${(row) => `${row.broker}-${row.failed_at}`} filter=${(row) => `broker ${row.broker} ${row.outcome} ${row.detected_by}`}
        noun="failure" columns=${PAST} empty="No broker has failed yet." />` : html`<${Waiting} of=${past} />`}
    <//>`;
}

/** When healing starts, or what it waits for. */
function next(row) {
  if (row.state === "healed") return row.healed_at ? `healed at ${time(row.healed_at)}` : "nothing is left to do";
  if (row.waits_for) return `waits for ${row.waits_for}`;
  if (row.due_at) return `starts in ${duration(Math.max(0, row.due_at - Date.now()))}`;
  return row.state === "healing" ? "goes on" : "–";
}

const NOW = [
  { title: "Broker", header: true, sort: (row) => row.id, cell: (row) => row.id },
  { title: "State", sort: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { title: "Down since", sort: (row) => row.failed_at ?? 0, cell: (row) => time(row.failed_at) },
  { title: "Healing", cell: next },
  { title: "Moved", number: true, sort: (row) => row.partitions_moved, cell: (row) => `${count(row.partitions_moved)} of ${plural(row.partitions_moved + row.partitions, "partition")}` },
  { title: "Tasks", cell: (row) => (row.chunks.length ? row.chunks.slice(0, 4).map((id, i) => html`${i > 0 && ", "}<${Link} to=${`/tasks/${id}`}>${id}<//>`) : "–") },
  { title: "Action", cell: (row) => html`<${ActionButton} action=${forgetBroker(row.id)} class="small" aria-label=${`Forget broker ${row.id} …`}>Forget …<//>` },
];

const PAST = [
  { title: "Broker", header: true, sort: (row) => row.broker, cell: (row) => row.broker },
  { title: "Outcome", sort: (row) => row.outcome, cell: (row) => html`<${State} state=${row.outcome} />` },
  { title: "Failed", sort: (row) => row.failed_at, cell: (row) => html`<${Link} to=${`/history/past?at=${row.failed_at}`}>${time(row.failed_at)}<//>` },
  { title: "Down for", number: true, sort: (row) => row.down_ms ?? -1, cell: (row) => (row.down_ms == null ? "–" : duration(row.down_ms)) },
  { title: "Healing took", number: true, sort: (row) => row.healing_ms ?? -1, cell: (row) => (row.healing_ms == null ? "–" : duration(row.healing_ms)) },
  { title: "Partitions moved", number: true, sort: (row) => row.partitions_moved, cell: (row) => `${count(row.partitions_moved)} of ${count(row.partitions)}` },
  { title: "Bytes", number: true, sort: (row) => row.bytes_moved, cell: (row) => bytes(row.bytes_moved) },
  { title: "Chunks", number: true, sort: (row) => row.chunks, cell: (row) => `${count(row.chunks_over)} of ${count(row.chunks)}${row.chunks_cancelled ? `, ${count(row.chunks_cancelled)} cancelled` : ""}` },
  { title: "Seen by", cell: (row) => row.detected_by },
];
