// Tasks that ended, also those that are no longer in ZooKeeper: from the audit.

import { html } from "../lib/dom.js";
import { count, duration, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { usePolled } from "../store/polled.js";
import { Failure, Waiting } from "../components/notice.js";
import { Table } from "../components/table.js";
import { TaskState } from "./task_parts.js";

export function PastTasks() {
  const found = usePolled("/v1/tasks/history?limit=1000", 10_000);
  if (!found.data) return html`<${Waiting} of=${found} />`;
  return html`${found.error && html`<${Failure} error=${found.error} />`}
    <${Table} caption="Past tasks" rows=${found.data.tasks} rowKey=${(row) => row.id} filter=${(row) => `${row.id} ${row.kind} ${row.state} ${row.actor} ${row.reason}`}
      noun="task" columns=${COLUMNS} empty="The audit has no task." />`;
}

const outcome = (row) => Object.entries(row.outcome).filter(([, number]) => number).map(([name, number]) => `${count(number)} ${name}`).join(", ") || "–";

const COLUMNS = [
  { title: "Task", header: true, sort: (row) => row.id, cell: (row) => html`<${Link} to=${`/tasks/${encodeURIComponent(row.id)}`}>${row.id}<//>` },
  { title: "Kind", sort: (row) => row.kind, cell: (row) => row.kind },
  { title: "State", sort: (row) => row.state, cell: (row) => html`<${TaskState} state=${row.state} />` },
  { title: "Partitions", number: true, sort: (row) => row.total, cell: (row) => count(row.total) },
  { title: "Outcome", cell: outcome },
  { title: "Started", sort: (row) => row.created_at, cell: (row) => time(row.created_at) },
  { title: "Took", number: true, sort: (row) => (row.finished_at ? row.finished_at - row.created_at : -1), cell: (row) => (row.finished_at ? duration(row.finished_at - row.created_at) : "–") },
  { title: "By", sort: (row) => row.actor, cell: (row) => row.actor },
  { title: "Reason", cell: (row) => row.reason || "–" },
  { title: "Cause", cell: (row) => html`<${Link} to=${`/history?cause=${encodeURIComponent(row.cause)}`}>${row.cause}<//>` },
];
