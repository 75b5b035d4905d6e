// The actions on tasks and reassignments, and those that start them.

import { named } from "../lib/commands.js";
import { html } from "../lib/dom.js";
import { count, plural, rate } from "../lib/format.js";
import { refresh } from "../store/polled.js";

const TASKS = "/v1/tasks";
const taskPath = (id) => `${TASKS}/${encodeURIComponent(id)}`;
const follow = (body) => (body.id ? { to: `/tasks/${body.id}`, text: "Follow the task" } : undefined);
const moved = () => [TASKS, "/v1/reassignments"].forEach(refresh);

const changed = (id) => () => {
  moved();
  refresh(taskPath(id));
};

/** The fields, members of the body and words of the command that all moves of replicas share. */
export const THROTTLE = { name: "throttle", label: "Throttle, bytes per second", type: "number", least: 1, hint: "What each broker may send, and receive; by default no limit" };
export const throttleOf = ({ throttle }) => (throttle ? { throttle_bytes_per_s: Number(throttle) } : {});
export const throttleWords = ({ throttle }) => (throttle ? ["--throttle", String(Number(throttle))] : []);
export const ALGORITHM = { name: "algorithm", label: "Steps", type: "select", required: true, options: [
  { value: "incremental", label: "incremental: a few replicas per step" }, { value: "legacy", label: "legacy: all replicas at once" },
] };

const TaskSummary = ({ body }) => html`<p>${body.dry_run ? "Would move" : "Task"} ${body.dry_run ? "" : body.id}: ${plural(body.partitions.total, "partition")}${
  body.dry_run ? "" : `, ${body.state}`}.</p>${Object.keys(body.details ?? {}).length > 0 && html`<details><summary>Details</summary><pre>${JSON.stringify(body.details, null, 2)}</pre></details>`}`;
const show = (body) => html`<${TaskSummary} body=${body} />`;

export const cancelTask = (id) => ({
  operation: "cancel_task",
  title: `Cancel task ${id}`,
  verb: "Cancel the task",
  about: "Partitions in the middle of a move return to the replicas they had; those that have arrived stay.",
  danger: true,
  request: () => ({ method: "DELETE", path: taskPath(id) }),
  cli: () => ["tasks", "cancel", id],
  show,
  done: changed(id),
});

export const throttleTask = (task) => ({
  operation: "change_task",
  title: `Throttle task ${task.id}`,
  verb: "Set the throttle",
  about: "Brokers obey it with their next heartbeat. Ceilings that all tasks share hold as well.",
  fields: [{ ...THROTTLE, value: task.throttle_bytes_per_s == null ? "" : String(task.throttle_bytes_per_s), hint: "Empty: no throttle of its own" }],
  confirm: ({ throttle }) => (throttle ? `Let each broker send, and receive, ${rate(Number(throttle))} for this task?` : "Remove the throttle of this task?"),
  request: ({ throttle }) => ({ method: "PATCH", path: taskPath(task.id), body: { throttle_bytes_per_s: throttle ? Number(throttle) : null } }),
  cli: ({ throttle }) => ["tasks", "throttle", task.id, throttle ? String(Number(throttle)) : "none"],
  show: (body) => html`<p>${body.throttle_bytes_per_s == null ? "The task has no throttle of its own." : `The throttle is ${rate(body.throttle_bytes_per_s)}.`}</p>`,
  done: changed(task.id),
});

export const cancelPartition = (topic, partition) => ({
  operation: "cancel_reassignment",
  on: { topic },
  title: `Cancel the move of ${topic}-${partition}`,
  verb: "Cancel the move",
  about: "The partition returns to the replicas it had. Its task goes on with the others.",
  danger: true,
  request: () => ({ method: "DELETE", path: `/v1/reassignments/${encodeURIComponent(topic)}/${partition}` }),
  cli: () => ["reassign", "cancel-partition", named(`${topic}-${partition}`)],
  show: (body) => html`<p>${body.topic}-${body.partition} returns to ${body.start.join(", ")}.</p>`,
  done: moved,
});

export const drainBroker = (brokers) => ({
  operation: "drain",
  title: "Drain a broker",
  verb: "Drain",
  about: "Its leaders move at once, and do not return while the task lasts. Its replicas follow.",
  danger: true,
  dryRun: true,
  fields: [
    { name: "broker", label: "Broker", type: "select", required: true, options: brokers.map((id) => ({ value: String(id), label: String(id) })) },
    THROTTLE,
    { name: "leadersOnly", label: "Leaders only: the replicas stay, and leaders stay away until the task is cancelled", type: "checkbox", wide: true },
  ],
  confirm: ({ broker, leadersOnly }) => `Move all leaders${leadersOnly ? "" : ", then all replicas,"} off broker ${broker}?`,
  request: (values, dryRun) => ({
    method: "POST",
    path: `/v1/brokers/${encodeURIComponent(values.broker)}/drain`,
    body: { ...throttleOf(values), ...(values.leadersOnly ? { leaders_only: true } : {}), ...(dryRun ? { dry_run: true } : {}) },
  }),
  cli: (values, dryRun) => ["brokers", "drain", values.broker, ...(values.leadersOnly ? ["--leaders-only"] : []), ...throttleWords(values), ...(dryRun ? ["--dry-run"] : [])],
  show,
  next: follow,
  done: moved,
});

export const forgetBroker = (id) => ({
  operation: "forget_broker",
  title: `Forget broker ${id}`,
  verb: "Forget the broker",
  about: "It is no longer listed as down. Refused while it is live, or while replicas are assigned to it.",
  danger: true,
  request: () => ({ method: "DELETE", path: `/v1/failed-brokers/${id}` }),
  cli: () => ["brokers", "forget", String(id)],
  show: (body) => html`<p>Broker ${body.id} is forgotten.</p>`,
  done: () => refresh("/v1/failed-brokers"),
});

/** Lines such as "orders-0: 2, 3, 1" as targets; null stands for a line that is none. */
export const targetsOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
  const found = /^(.+)-(\d+)\s*[:=]\s*(\d+(?:\s*[,:\s]\s*\d+)*)$/.exec(line);
  return found && { topic: found[1], partition: Number(found[2]), replicas: found[3].split(/[\s,:]+/).map(Number) };
});
const parsed = ({ targets }) => targetsOf(targets).filter(Boolean);

/** Change the replicas of partitions. @param {{topic: string, row: number[]}[]} chosen those that the form begins with */
export const reassign = (chosen) => ({
  operation: "reassign",
  title: "Reassign partitions",
  verb: "Reassign",
  about: "The replicas change in steps, without interrupting clients. The first replica is the preferred leader.",
  dryRun: true,
  fields: [
    { name: "targets", label: "New replicas", type: "textarea", required: true, hint: "One partition a line, such as orders-0: 2, 3, 1",
      value: chosen.map(({ topic, row }) => `${topic}-${row[0]}: ${row[4].join(", ")}`).join("\n"),
      check: (text) => (targetsOf(text).includes(null) ? `line ${targetsOf(text).indexOf(null) + 1} is not like orders-0: 2, 3, 1` : "") },
    ALGORITHM,
    THROTTLE,
    { name: "sameCount", label: "Refuse targets with more or fewer replicas than now", type: "checkbox", wide: true },
    { name: "retarget", label: "Include partitions that are being reassigned already", type: "checkbox", wide: true },
  ],
  confirm: (values) => `Change the replicas of ${plural(parsed(values).length, "partition")}?`,
  request: (values, dryRun) => ({
    method: "POST",
    path: "/v1/reassignments",
    body: {
      version: 1, partitions: parsed(values), algorithm: values.algorithm, ...throttleOf(values),
      ...(values.retarget ? { retarget: true } : {}), ...(values.sameCount ? { allow_replication_factor_change: false } : {}), ...(dryRun ? { dry_run: true } : {}),
    },
  }),
  cli: (values, dryRun) => [
    "reassign", "start", ...parsed(values).flatMap((one) => ["--partition", `${one.topic}-${one.partition}=${one.replicas.join(":")}`]),
    "--algorithm", values.algorithm, ...throttleWords(values), ...(values.retarget ? ["--retarget"] : []), ...(values.sameCount ? ["--same-count"] : []), ...(dryRun ? ["--dry-run"] : []),
  ],
  show,
  next: follow,
  done: moved,
});

/** Apply a plan; the server refuses a stale one. @param {object} plan as the API returns it */
export const applyPlan = (plan) => ({
  operation: "apply_plan",
  title: `Apply the plan (${plan.kind})`,
  verb: "Apply the plan",
  about: `It is bound to version ${count(plan.version)} of the metadata: it is refused if replicas of its topics or the live brokers have changed since. The command makes the plan again, then applies it.`,
  fields: [ALGORITHM, THROTTLE],
  confirm: () => `Copy ${plural(plan.figures.moves, "replica")} of ${plural(plan.figures.partitions, "partition")}?`,
  request: (values) => ({ method: "POST", path: `/v1/plans/${encodeURIComponent(plan.id)}/apply`, body: { algorithm: values.algorithm, ...throttleOf(values) } }),
  // What was asked for is known to the page that made the plan only.
  cli: plan.asked && ((values) => [...planWords(plan.asked), "--apply", "--algorithm", values.algorithm, ...throttleWords(values)]),
  show,
  next: follow,
  done: () => {
    moved();
    refresh(`/v1/plans/${encodeURIComponent(plan.id)}`);
  },
});

/** The words of the command that makes a plan. @param {{kind: string, brokers?: number[], topics?: string[], exclude?: number[]}} asked */
export const planWords = ({ kind, brokers = [], topics = [], exclude = [] }) => [
  "plan", kind, ...brokers.map(String), ...topics.flatMap((name) => ["--topic", name]), ...exclude.flatMap((id) => ["--exclude", String(id)]),
];
