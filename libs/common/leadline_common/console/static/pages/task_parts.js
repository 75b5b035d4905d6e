// What several pages show of tasks and of the moves of partitions.

import { html } from "../lib/dom.js";
import { bytes, count, duration, plural } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { usePolled } from "../store/polled.js";
import { ActionButton } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Waiting } from "../components/notice.js";
import { Table } from "../components/table.js";
import { cancelPartition, cancelTask, throttleTask } from "./task_actions.js";

const OPEN = ["preparing", "accepted", "running", "cancelling"];
const TONES = { done: "good", failed: "bad", cancelled: undefined, cancelling: "warn" };

export const isOpen = (task) => OPEN.includes(task.state);
export const TaskState = ({ state }) => html`<${Badge} tone=${state in TONES ? TONES[state] : "info"}>${state}<//>`;

/** The share of the work that is done, in [0, 1]: bytes while they are known, else partitions. */
export function shareOf(task) {
  const { total, done, failed, moving } = task.partitions;
  if (!total) return isOpen(task) ? 0 : 1;
  const copied = task.bytes_total ? 1 - task.bytes_left / task.bytes_total : 0;
  return Math.min(1, (done + failed + moving * copied) / total);
}

export const Progress = ({ task }) => html`<span class="buttons"><progress max="1" value=${shareOf(task)} aria-label=${`Progress of task ${task.id}`}></progress>
  <span class="nowrap">${count(task.partitions.done)} of ${count(task.partitions.total)}</span></span>`;

export const timeLeft = (task) => (!isOpen(task) ? "–" : task.eta_ms == null ? "not known" : duration(task.eta_ms));

export const TaskButtons = ({ task }) => (isOpen(task) ? html`<span class="buttons">
  <${ActionButton} action=${throttleTask(task)} class="small" aria-label=${`Throttle task ${task.id} …`}>Throttle …<//>
  <${ActionButton} action=${cancelTask(task.id)} class="small" aria-label=${`Cancel task ${task.id} …`}>Cancel …<//></span>` : "");

/** The moves of partitions, of one task or of all. @param {{task?: string}} props */
export function Moves({ task }) {
  const found = usePolled("/v1/reassignments", 1_500);
  if (!found.data) return html`<${Waiting} of=${found} />`;
  const rows = found.data.reassignments.filter((row) => !task || row.task === task);
  const { replica_movements: replicas, partition_movements: partitions, leader_movements: leaders } = found.data.limits;
  const limit = (number, noun) => (number == null ? `no limit of ${noun}s` : `at most ${plural(number, noun)}`);
  return html`<${Table} caption=${task ? `Moves of task ${task}` : "Partitions in reassignment"} rows=${rows} rowKey=${(row) => `${row.topic}-${row.partition}`} filter=${(row) => `${row.topic}-${row.partition} ${row.reason ?? ""}`}
      noun="partition" columns=${MOVE_COLUMNS} empty="No partition is being reassigned." height="26rem" />
    <p class="muted">At a time: ${limit(replicas, "replica")}, ${limit(partitions, "partition")}, ${limit(leaders, "leader")}.</p>`;
}

const REASONS = {
  queued: "the limits of moves at a time",
  leader_limit: "the limit of leaders that move at a time",
  catching_up: "new replicas to catch up",
  target_offline: "a broker of the target that is down",
  partition_offline: "a leader: the partition has none",
};

const waits = (row) => {
  if (!row.reason) return "–";
  const what = REASONS[row.reason] ?? row.reason.replaceAll("_", " ");
  return row.waiting_for.length ? `${what}, on broker ${row.waiting_for.join(", ")}` : what;
};

const MOVE_COLUMNS = [
  { title: "Partition", header: true, sort: (row) => `${row.topic}-${String(row.partition).padStart(9, "0")}`, cell: (row) => html`<${Link} to=${`/topics/${encodeURIComponent(row.topic)}`}>${row.topic}-${row.partition}<//>` },
  { title: "Phase", sort: (row) => row.state, cell: (row) => html`<${Badge} tone=${row.cancelled || row.state === "waiting" ? "warn" : "info"}>${row.cancelled ? "returning" : row.state}<//>` },
  { title: "From", cell: (row) => row.start.join(", ") },
  { title: "To", cell: (row) => row.target.join(", ") },
  { title: "Now", cell: (row) => `${row.current.join(", ")}${row.adding.length ? ` + ${row.adding.join(", ")}` : ""}${row.removing.length ? ` − ${row.removing.join(", ")}` : ""}` },
  { title: "Left", number: true, sort: (row) => row.bytes_left, cell: (row) => bytes(row.bytes_left) },
  { title: "Action", cell: (row) => html`<${ActionButton} action=${cancelPartition(row.topic, row.partition)} class="small" aria-label=${`Cancel the move of ${row.topic}-${row.partition} …`}>Cancel …<//>` },
  { title: "Waits for", sort: (row) => row.reason ?? "", cell: waits },
  { title: "Task", sort: (row) => row.task ?? "", cell: (row) => (row.task ? html`<${Link} to=${`/tasks/${row.task}`}>${row.task}<//>` : "written directly") },
];
