// Long operations: those that run, with what each waits for; their past; brokers that are down and
// their healing; plans. A task's own page is pages/task.js.

import { html } from "../lib/dom.js";
import { bytes, rate, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { usePolled } from "../store/polled.js";
import { ActionButton } from "../components/action_form.js";
import { Allowed } from "../components/allowed.js";
import { Failure, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { Failures } from "./failures.js";
import { PastTasks } from "./past_tasks.js";
import { Plans } from "./plans.js";
import { ChooseReplicas } from "./choose_replicas.js";
import { Task } from "./task.js";
import { drainBroker, reassign } from "./task_actions.js";
import { Moves, Progress, TaskButtons, TaskState, isOpen, shareOf, timeLeft } from "./task_parts.js";

const TABS = [["/tasks", "Running"], ["/tasks/past", "Past tasks"], ["/tasks/failures", "Failed brokers"], ["/tasks/plans", "Plans"], ["/tasks/reassign", "Choose replicas"]];
const NEEDS = { "": "list_tasks", past: "read_past_tasks", failures: "list_failed_brokers", plans: "list_tasks", reassign: "list_tasks" };
const SHOWN = { "": Running, past: PastTasks, failures: Failures, plans: Plans, reassign: ChooseReplicas };
/** @param {{tab?: string}} props a part of this page, or the id of a task */
export function Tasks({ tab = "" }) {
  const shown = SHOWN[tab];
  if (!shown) return html`<${Task} id=${tab} />`;
  drawn.value;
  const ids = [...cluster.brokers.keys()].sort((a, b) => a - b);
  return html`<${Page} title="Tasks" about="Reassignments, drains and self-healing: operations that go on by themselves, also if a controller fails."
      actions=${html`<${ActionButton} action=${drainBroker(ids)} missing=${ids.length ? "" : "the brokers"}>Drain a broker …<//><${ActionButton} action=${reassign([])} class="primary">Reassign partitions …<//>`}>
    <${Tabs} name="Parts of the tasks" tabs=${TABS} />
    <${Allowed} to=${NEEDS[tab]}><${shown} /><//>
  <//>`;
}

function Running() {
  const tasks = usePolled("/v1/tasks", 1_500);
  if (!tasks.data) return html`<${Waiting} of=${tasks} />`;
  const rows = [...tasks.data.tasks].reverse().sort((a, b) => Number(isOpen(b)) - Number(isOpen(a)));
  return html`${tasks.error && html`<${Failure} error=${tasks.error} />`}
    <${Card} title="Tasks"><${Table} caption="Running tasks, and the latest that ended" rows=${rows} rowKey=${(row) => row.id} filter=${(row) => `${row.id} ${row.kind} ${row.state} ${row.actor} ${row.reason} ${row.waits_for ?? ""}`}
      noun="task" columns=${TASK_COLUMNS} empty="No task is running, and none has ended lately." height="28rem" /><//>
    <${Card} title="Partitions in reassignment"><${Moves} /><//>`;
}

const TASK_COLUMNS = [
  { title: "Task", header: true, sort: (row) => row.id, cell: (row) => html`<${Link} to=${`/tasks/${encodeURIComponent(row.id)}`}>${row.id}<//>` },
  { title: "Kind", sort: (row) => row.kind, cell: (row) => row.kind },
  { title: "State", sort: (row) => row.state, cell: (row) => html`<${TaskState} state=${row.state} />` },
  { title: "Progress", sort: shareOf, cell: (row) => html`<${Progress} task=${row} />` },
  { title: "Left", number: true, sort: (row) => row.bytes_left, cell: (row) => (isOpen(row) ? bytes(row.bytes_left) : "–") },
  { title: "Rate", number: true, sort: (row) => row.rate_bytes_per_s, cell: (row) => (isOpen(row) ? rate(row.rate_bytes_per_s) : "–") },
  { title: "Time left", number: true, sort: (row) => row.eta_ms ?? -1, cell: timeLeft },
  { title: "Throttle", number: true, sort: (row) => row.throttle_bytes_per_s ?? 0, cell: (row) => (row.throttle_bytes_per_s == null ? "none" : rate(row.throttle_bytes_per_s)) },
  { title: "Action", cell: (row) => html`<${TaskButtons} task=${row} />` },
  { title: "Waits for", sort: (row) => row.waits_for ?? "", cell: (row) => row.waits_for ?? "–" },
  { title: "By", sort: (row) => row.actor, cell: (row) => row.actor },
  { title: "Started", sort: (row) => row.created_at_ms, cell: (row) => time(row.created_at_ms) },
];
