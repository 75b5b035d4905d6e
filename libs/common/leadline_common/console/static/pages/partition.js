// One partition: each replica's state, and how its leader and ISR have changed, with the reasons.

import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { get } from "../lib/api.js";
import { bytes, count, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { roleOf } from "../store/health.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { lagOf, useReplicas } from "../store/replicas.js";
import { ActionButton } from "../components/action_form.js";
import { Badge, Stat } from "../components/badge.js";
import { Failure, Notice, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { cancelReassignment, electLeaders } from "./topic_actions.js";

const TONES = { leader: "info", "in sync": "good", "out of sync": "warn", down: "bad" };
const PAGE = 500;
/** Changes that are read without being asked for. */
const READ = 5_000;

/** @param {{topic: string, partition: string}} props */
export function Partition({ topic, partition: text }) {
  drawn.value;
  const partition = /^\d{1,9}$/.test(text) ? Number(text) : -1;
  const row = cluster.topics.get(topic)?.rows.get(partition);
  const base = `/topics/${encodeURIComponent(topic)}`;
  const title = `${topic}-${text}`;
  if (!row) {
    return html`<${Page} title=${title}>${cluster.version > 0 && html`<${Notice} tone="warn" title="There is no such partition now"><p><${Link} to=${base}>${topic}<//> may still have its past.</p><//>`}
      ${partition >= 0 && html`<${History} key=${title} topic=${topic} partition=${partition} />`}<//>`;
  }
  return html`<${Page} title=${title} badge=${html`<${State} row=${row} />`} actions=${html`<${Actions} key=${title} topic=${topic} partition=${partition} />`}
      about=${html`A partition of <${Link} to=${base}>${topic}<//>; <${Link} to=${`${base}/records?partition=${partition}`}>its records<//>`}>
    <${Replicas} topic=${topic} row=${row} />
    <${History} key=${title} topic=${topic} partition=${partition} version=${`${row[1]} ${row[2]} ${row[3]}`} />
  <//>`;
}

const State = ({ row }) => (row[1] < 0 ? html`<${Badge} tone="bad">no leader<//>` : row[3].length < row[4].length ? html`<${Badge} tone="warn">under-replicated<//>` : html`<${Badge} tone="good">in sync<//>`);

function Actions({ topic, partition }) {
  const found = usePolled(may("list_reassignments") ? null : `/v1/reassignments?topic=${encodeURIComponent(topic)}`, 3_000);
  const moving = useRef(false); // Stays: the action shows what became of it.
  moving.current ||= found.data?.reassignments.some((one) => one.partition === partition) ?? false;
  return html`<${ActionButton} action=${electLeaders(topic, partition)}>Elect a leader …<//>
    ${moving.current && html`<${ActionButton} action=${cancelReassignment(topic, partition)}>Cancel the reassignment …<//>`}`;
}

function Replicas({ topic, row }) {
  const [partition, leader, epoch, isr, assigned] = row;
  const replicas = useReplicas(topic, partition, partition);
  const known = replicas.rows.get(partition);
  const led = known?.get(leader);
  const rows = assigned.map((id, i) => {
    const live = cluster.brokers.has(id);
    return { id, live, preferred: i === 0, role: roleOf(row, id, live), isIn: isr.includes(id), lag: lagOf(row, known, id), found: known?.get(id), rack: cluster.brokers.get(id)?.rack };
  });
  return html`<dl class="stats">
      <${Stat} name="Leader" tone=${leader < 0 ? "bad" : undefined}>${leader < 0 ? "none" : `broker ${leader}`}<//>
      <${Stat} name="Leader epoch">${count(epoch)}<//>
      <${Stat} name="In sync" tone=${isr.length < assigned.length ? "warn" : undefined} more=${`of ${count(assigned.length)} replicas`}>${count(isr.length)}<//>
      <${Stat} name="Records" more=${led && `offsets ${count(led.log_start_offset)} to ${count(led.high_watermark)}`}>${count(led && led.high_watermark - led.log_start_offset)}<//>
      <${Stat} name="Size">${bytes(led?.size_bytes)}<//></dl>
    ${replicas.why && html`<p class="muted">Lag, offsets and sizes: ${replicas.why}.</p>`}
    <${Card} title="Replicas"><${Table} caption=${`Replicas of ${topic}-${partition}`} rows=${rows} rowKey=${(one) => one.id} noun="replica" columns=${REPLICA_COLUMNS} height="24rem" /><//>`;
}

const REPLICA_COLUMNS = [
  { title: "Broker", header: true, class: "narrow", cell: (one) => html`<${Link} to=${`/brokers/${one.id}`}>${one.id}<//>${one.preferred && html` <span class="muted">preferred</span>`}` },
  { title: "State", cell: (one) => html`<${Badge} tone=${TONES[one.role]}>${stateOf(one)}<//>` },
  { title: "In the ISR", cell: (one) => (one.isIn ? "yes" : "no") },
  { title: "Rack", cell: (one) => one.rack ?? "–" },
  { title: "Behind", number: true, cell: (one) => count(one.lag) },
  { title: "First offset", number: true, cell: (one) => count(one.found?.log_start_offset) },
  { title: "High watermark", number: true, cell: (one) => count(one.found?.high_watermark) },
  { title: "Log end", number: true, cell: (one) => count(one.found?.log_end_offset) },
  { title: "On disk to", number: true, cell: (one) => count(one.found?.durable_end_offset) },
  { title: "Size", number: true, cell: (one) => bytes(one.found?.size_bytes) },
];

const stateOf = ({ role, lag }) => (role === "out of sync" ? `lagging${lag === null ? "" : ` by ${count(lag)}`}` : role === "down" ? "dead" : role);

/** Every change, newest first. `version` changes with the partition: what is new is read again. */
function History({ topic, partition, version = "" }) {
  const [older, setOlder] = useState([]);
  const [cursor, setCursor] = useState(undefined);
  const [problem, setProblem] = useState(null);
  const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/history`;
  const why = may("read_partition_history", { topic });
  // Oldest first, in pages: what is new is after the last whole page.
  const found = usePolled(why ? null : `${path}?page_size=${PAGE}${cursor ? `&cursor=${cursor}` : ""}`, version ? 3_000 : 60_000);
  const changes = [...older, ...(found.data?.changes ?? [])].reverse();
  const next = found.data?.next_cursor;
  const more = async () => {
    try {
      setOlder([...older, ...(await get(`${path}?page_size=${PAGE}${cursor ? `&cursor=${cursor}` : ""}`)).body.changes]);
      setCursor(next);
    } catch (error) {
      setProblem(error);
    }
  };
  // The newest are what is asked for: read on by itself, unless there are very many.
  useEffect(() => {
    if (next && older.length < READ) void more();
  }, [next]);
  return html`<${Card} title="Why did the leader change" end=${next && html`<button type="button" onClick=${more}>Read newer changes</button>`}>
    ${why ? html`<${Notice} tone="warn">${why}<//>` : !found.data ? html`<${Waiting} of=${found} />` : html`
      ${(problem ?? found.error) && html`<${Failure} error=${problem ?? found.error} />`}
      <${Table} caption=${`Leader and ISR history of ${topic}-${partition}`} rows=${changes} rowKey=${(one) => `${one.audit_id} ${one.state_version}`} noun="change" columns=${HISTORY_COLUMNS}
        filter=${(one) => `${one.reason} ${one.kind} ${one.actor} ${one.why} ${one.cause}`} empty="No change is recorded." />`}<//>`;
}

/** The reasons of the API in words. */
const REASONS = {
  new: "The partition was created",
  isr: "The leader was not available: the first live replica in sync leads",
  preferred: "The preferred leader leads again",
  reassigned: "A reassignment",
  unclean: "An unclean election: records may have been lost",
  none: "No replica in sync is live",
  directory_replaced: "Members of the ISR are live, but with other log directories",
  unchanged: "The leader stays; the ISR or the epoch has changed",
};
const leaderOf = (roles) => (roles === null ? "–" : roles.leader < 0 ? "none" : roles.leader);

const HISTORY_COLUMNS = [
  { title: "Time", header: true, class: "narrow", sort: (one) => one.audit_id, cell: (one) => time(one.time) },
  { title: "Leader", class: "narrow", cell: (one) => (one.before && one.before.leader === one.after.leader ? leaderOf(one.after) : html`<strong>${leaderOf(one.before)} → ${leaderOf(one.after)}</strong>`) },
  { title: "Epoch", number: true, class: "narrow", cell: (one) => count(one.after.leader_epoch) },
  { title: "ISR", class: "narrow", cell: (one) => `${one.before ? `${one.before.isr.join(", ") || "none"} → ` : ""}${one.after.isr.join(", ") || "none"}` },
  { title: "Reason", cell: (one) => html`<span title=${REASONS[one.reason]}>${one.reason}</span>${one.why && html` <span class="muted">${one.why}</span>`}` },
  { title: "By", class: "narrow", cell: (one) => one.actor },
  { title: "Cause", class: "cut", cell: (one) => html`<${Link} to=${`/history?cause=${encodeURIComponent(one.cause)}`}>${one.cause}<//>` },
];
