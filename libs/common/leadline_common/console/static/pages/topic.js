// One topic: partitions by broker with lag, offsets and sizes, records, settings; and its actions.

import { html, useRef, useState } from "../lib/dom.js";
import { bytes, count, plural } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { health } from "../store/health.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { useReplicas } from "../store/replicas.js";
import { ActionButton, ActionForm } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Dialog } from "../components/dialog.js";
import { Notice } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { PartitionGrid } from "../components/partition_grid.js";
import { Table } from "../components/table.js";
import { Records } from "./records.js";
import { Settings, ofTopic } from "./settings.js";
import { addPartitions, cancelReassignment, deleteTopic, electLeaders, removePartitions } from "./topic_actions.js";
import { TopicState } from "./topics.js";

/** The tabs of a topic: [path below the topic, title, component({topic})]. */
const TABS = [
  ["", "Partitions", Partitions],
  ["offsets", "Offsets and sizes", Offsets],
  ["records", "Records", Records],
  ["settings", "Settings", ({ topic }) => html`<${Settings} owner=${ofTopic(topic)} />`],
];

/** @param {{topic: string, tab?: string}} props */
export function Topic({ topic, tab = "" }) {
  drawn.value;
  const found = cluster.topics.get(topic);
  const shown = TABS.find(([path]) => path === tab);
  const seen = useRef(false);
  seen.current ||= Boolean(found);
  // Of a topic that was just deleted the action stays, as it shows what became of it.
  const actions = seen.current && html`<${Actions} topic=${topic} gone=${!found} />`;
  if (!found || !shown) {
    return html`<${Page} title=${topic} actions=${actions}>${cluster.version > 0 && html`<${Notice} tone="warn" title=${found ? "There is no such page" : "There is no such topic"}>
      <p>It may have been deleted, or you may not see it. <${Link} to="/topics">All topics<//></p><//>`}<//>`;
  }
  const base = `/topics/${encodeURIComponent(topic)}`;
  return html`<${Page} title=${topic} badge=${html`<${TopicState} topic=${health().topics.get(topic)} />`} actions=${actions}
      about=${html`${plural(found.rows.size, "partition")}, topic id <span class="mono">${found.topicId}</span>`}>
    <nav class="tabs" aria-label="Parts of the topic">${TABS.map(([path, title]) => html`<${Link} to=${path ? `${base}/${path}` : base} current=${path === tab}>${title}<//>`)}</nav>
    <${shown[2]} key=${tab} topic=${topic} />
  <//>`;
}

const Actions = ({ topic, gone }) => html`
  ${!gone && html`<${ActionButton} key="add" action=${addPartitions(topic)}>Add partitions …<//>`}
  ${!gone && html`<${ActionButton} key="remove" action=${removePartitions(topic)}>Remove partitions …<//>`}
  ${!gone && html`<${ActionButton} key="elect" action=${electLeaders(topic)}>Elect leaders …<//>`}
  <${ActionButton} key="delete" action=${deleteTopic(topic)}>Delete …<//>`;

/** The rows of a topic in the order of partitions. */
const rowsOf = (topic) => [...(cluster.topics.get(topic)?.rows.values() ?? [])].sort((a, b) => a[0] - b[0]);
const partitionPath = (topic, partition) => `/topics/${encodeURIComponent(topic)}/partitions/${partition}`;

function Partitions({ topic }) {
  drawn.value;
  const rows = rowsOf(topic).map((row) => ({ topic, row }));
  return html`<${Moving} topic=${topic} />
    <${PartitionGrid} caption=${`Partitions of ${topic} by broker`} topic=${topic} rows=${rows} />`;
}

const movingColumns = (topic, cancel) => [
  { title: "Partition", header: true, class: "narrow", sort: (row) => row.partition, cell: (row) => html`<${Link} to=${partitionPath(topic, row.partition)}>${row.partition}<//>` },
  { title: "State", cell: (row) => html`<${Badge} tone=${row.reason ? "warn" : "info"}>${row.cancelled ? "reverting" : row.reason ?? row.state}<//>` },
  { title: "From", cell: (row) => row.start.join(", ") },
  { title: "To", cell: (row) => row.target.join(", ") },
  { title: "Waits for broker", cell: (row) => row.waiting_for.join(", ") || "–" },
  { title: "Left", number: true, sort: (row) => row.bytes_left, cell: (row) => bytes(row.bytes_left) },
  { title: "Action", class: "narrow", cell: (row) => html`<button type="button" class="small" aria-label=${`Cancel the reassignment of ${topic}-${row.partition}`} onClick=${() => cancel(row.partition)}>Cancel …</button>` },
];

/** The partitions in reassignment, if there are any. */
function Moving({ topic }) {
  const found = usePolled(may("list_reassignments") ? null : `/v1/reassignments?topic=${encodeURIComponent(topic)}`, 3_000);
  const [open, setOpen] = useState(null); // Kept here: the row is gone before its answer was read.
  const rows = found.data?.reassignments ?? [];
  const action = open !== null && cancelReassignment(topic, open);
  return html`${rows.length > 0 && html`<${Card} title="In reassignment"><${Table} caption="Partitions in reassignment" rows=${rows} rowKey=${(row) => row.partition} noun="partition" columns=${movingColumns(topic, setOpen)} height="20rem" /><//>`}
    ${action && html`<${Dialog} key=${open} title=${action.title} onClose=${() => setOpen(null)}><${ActionForm} action=${action} /><//>`}`;
}

/** The columns whose values are read from the leaders. */
const READ = ["First offset", "High watermark", "Log end", "Records", "Size"];
const recordsOf = (found) => found && found.high_watermark - found.log_start_offset;

function Offsets({ topic }) {
  drawn.value;
  const [view, setView] = useState({ first: 0, last: 40 });
  const [order, setOrder] = useState(null);
  const rows = rowsOf(topic);
  // Only what is in view is read, but an order by it needs that of all.
  const all = READ.includes(order) && rows.length > 0;
  const replicas = useReplicas(topic, all ? 0 : view.first, all ? rows.at(-1)[0] : view.last);
  const look = (first, last, shown) => {
    const numbers = shown.slice(first, last).map((row) => row[0]);
    if (!numbers.length) return;
    const next = { first: Math.min(...numbers), last: Math.max(...numbers) };
    if (next.first !== view.first || next.last !== view.last) setView(next);
  };
  const of = (row) => replicas.rows.get(row[0])?.get(row[1]);
  const columns = [
    { title: "Partition", header: true, class: "narrow", sort: (row) => row[0], cell: (row) => html`<${Link} to=${partitionPath(topic, row[0])}>${row[0]}<//>` },
    { title: "Leader", number: true, sort: (row) => row[1], cell: (row) => (row[1] < 0 ? "none" : row[1]) },
    { title: "Epoch", number: true, sort: (row) => row[2], cell: (row) => count(row[2]) },
    { title: "First offset", number: true, sort: (row) => of(row)?.log_start_offset ?? -1, cell: (row) => count(of(row)?.log_start_offset) },
    { title: "High watermark", number: true, sort: (row) => of(row)?.high_watermark ?? -1, cell: (row) => count(of(row)?.high_watermark) },
    { title: "Log end", number: true, sort: (row) => of(row)?.log_end_offset ?? -1, cell: (row) => count(of(row)?.log_end_offset) },
    { title: "Records", number: true, sort: (row) => recordsOf(of(row)) ?? -1, cell: (row) => count(recordsOf(of(row))) },
    { title: "Size", number: true, sort: (row) => of(row)?.size_bytes ?? -1, cell: (row) => bytes(of(row)?.size_bytes) },
    { title: "Look at", class: "narrow", cell: (row) => html`<${Link} to=${`/topics/${encodeURIComponent(topic)}/records?partition=${row[0]}`} aria-label=${`Records of ${topic}-${row[0]}`}>Records<//>` },
  ];
  return html`${replicas.why && html`<${Notice} tone="warn" title="Offsets cannot be read">${replicas.why}<//>`}
    ${replicas.missing.length > 0 && html`<${Notice} tone="warn">No answer from broker ${replicas.missing.join(", ")}.<//>`}
    <${Table} caption=${`Offsets and sizes of ${topic}`} columns=${columns} rows=${rows} rowKey=${(row) => row[0]} filter=${(row) => String(row[0])} noun="partition" onRange=${look} onOrder=${setOrder} />`;
}
