// What can be done to a topic and its partitions.

import { named } from "../lib/commands.js";
import { html } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { cluster } from "../store/cluster.js";
import { refresh } from "../store/polled.js";
import { Notice } from "../components/notice.js";

const path = (topic, rest = "") => `/v1/topics/${encodeURIComponent(topic)}${rest}`;
const REPLICAS = /^\d+(:\d+)*(,\d+(:\d+)*)*$/;
const WAIT = "It goes on even if this page is closed.";

/** What is wrong with replicas as the command takes them: `1:2:3,2:3:1`. */
export const assignmentProblem = (text) => (!text.trim() || REPLICAS.test(text.trim()) ? "" : "write it as 1:2:3,2:3:1: brokers of a partition by ':', partitions by ','");

/** Replicas by partition, numbered from `first`; undefined if the field is empty. */
export const assignmentOf = (text, first = 0) =>
  text.trim() ? Object.fromEntries(text.trim().split(",").map((row, i) => [first + i, row.split(":").map(Number)])) : undefined;

export const deleteTopic = (topic) => ({
  operation: "delete_topic",
  on: { topic },
  title: `Delete the topic ${topic}`,
  verb: "Delete",
  danger: true,
  about: `All records of its partitions are lost. ${WAIT}`,
  fields: [{ name: "name", label: "Type the topic's name", required: true, check: (name) => (name === topic ? "" : `is not ${topic}`) }],
  request: () => ({ method: "DELETE", path: path(topic) }),
  cli: () => ["topics", "delete", named(topic), "--yes"],
  confirm: () => `Delete ${topic} with all its records? They cannot be restored from here.`,
  show: (body) => html`<p>${body.name} ${body.complete ? "is deleted" : "is being deleted"}.</p>`,
  next: () => ({ to: "/topics", text: "All topics" }),
});

const present = (topic) => cluster.topics.get(topic)?.rows.size ?? 0;

export const addPartitions = (topic) => ({
  operation: "add_partitions",
  on: { topic },
  title: `Add partitions to ${topic}`,
  verb: "Add",
  about: "Existing records stay where they are, but keys may map to other partitions afterwards.",
  fields: [
    { name: "total", label: "New number of partitions", type: "number", required: true, least: present(topic) + 1, value: String(present(topic) + 1), hint: `Now: ${present(topic)}` },
    { name: "assignment", label: "Replicas of the new partitions", wide: true, hint: "Such as 1:2:3,2:3:1, the preferred leader first; by default they are placed automatically", check: assignmentProblem },
  ],
  request: (values, dryRun) => ({
    method: "POST",
    path: path(topic, "/partitions"),
    body: { partitions: Number(values.total), replica_assignment: assignmentOf(values.assignment, present(topic)), ...(dryRun ? { dry_run: true } : {}) },
  }),
  cli: (values) => ["partitions", "add", named(topic), values.total, ...(values.assignment.trim() ? ["--assignment", values.assignment.trim(), "--from", String(present(topic))] : [])],
  dryRun: true,
  confirm: (values) => `Bring ${topic} to ${values.total} partitions?`,
  show: (body) => html`<p>${body.topic}: ${plural(body.partitions, "partition")}</p><${Placement} of=${body.added} />`,
});

/** Replicas by partition. @param {{of: Record<string, number[]>}} props */
export const Placement = ({ of }) => html`<pre role="group" aria-label="Placement of the replicas">${Object.entries(of).slice(0, 200).map(([partition, replicas]) => `${partition}: ${replicas.join(", ")}`).join("\n")}${Object.keys(of).length > 200 ? "\n…" : ""}</pre>`;

/** The highest partitions as numbers, the lowest of them first. */
const highest = (topic, going) => Array.from({ length: going }, (_, i) => present(topic) - going + i);

export const removePartitions = (topic) => ({
  operation: "remove_partitions",
  on: { topic },
  title: `Remove partitions of ${topic}`,
  verb: "Remove",
  danger: true,
  about: `The highest partitions go, with all their records; at least one stays. ${WAIT}`,
  fields: [{ name: "going", label: "How many to remove", type: "number", required: true, least: 1, most: Math.max(1, present(topic) - 1), value: "1", hint: `Now: ${present(topic)}` }],
  request: (values, dryRun) => ({
    method: "DELETE",
    path: path(topic, "/partitions"),
    body: { partitions: highest(topic, Number(values.going)), ...(dryRun ? { dry_run: true } : {}) },
  }),
  cli: (values) => ["partitions", "remove", named(topic), ...highest(topic, Number(values.going)).map(String), "--yes"],
  dryRun: true,
  confirm: (values) => `Remove ${topic}-${highest(topic, Number(values.going)).join(`, ${topic}-`)} with all their records?`,
  show: (body) => html`<p>${body.topic}: ${body.dry_run ? "would go" : body.complete ? "removed" : "being removed"}: ${body.partitions.join(", ")}</p>`,
});

export const cancelReassignment = (topic, partition) => ({
  operation: "cancel_reassignment",
  on: { topic },
  title: `Cancel the reassignment of ${topic}-${partition}`,
  verb: "Cancel the reassignment",
  danger: true,
  about: "The partition reverts to its replicas before the reassignment; its task continues with the others.",
  request: () => ({ method: "DELETE", path: `/v1/reassignments/${encodeURIComponent(topic)}/${partition}` }),
  cli: () => ["reassign", "cancel-partition", named(`${topic}-${partition}`)],
  confirm: () => `Return ${topic}-${partition} to its replicas before the reassignment?`,
  show: (body) => html`<p>${body.topic}-${body.partition} returns to ${body.start.join(", ")}.</p>`,
  done: () => refresh(`/v1/reassignments?topic=${encodeURIComponent(topic)}`),
});

const numbersOf = (text) => text.split(/[\s,]+/).filter(Boolean).map(Number);

/** Which partitions an election is about; undefined: all of the cluster. */
function chosen(topic, values) {
  if (!topic) return undefined;
  const numbers = values.partitions?.trim() ? numbersOf(values.partitions) : [...(cluster.topics.get(topic)?.rows.keys() ?? [])].sort((a, b) => a - b);
  return numbers.map((partition) => ({ topic, partition }));
}

/** Elect leaders: of the whole cluster, of a topic, or of one partition. @param {string} [topic] @param {number} [partition] */
export const electLeaders = (topic, partition) => ({
  operation: "elect",
  on: { topic },
  title: partition === undefined ? `Elect leaders of ${topic ?? "all partitions"}` : `Elect a leader of ${topic}-${partition}`,
  verb: "Elect",
  danger: true,
  about: "A preferred election moves leadership to the first replica where it is in sync. An unclean one lets any live replica lead a partition without a leader: records that only members of the old ISR have are lost for good. Try it first: the dry run names them.",
  fields: [
    { name: "type", label: "Election", type: "select", options: [{ value: "preferred", label: "preferred leaders" }, { value: "unclean", label: "unclean (may lose records)" }] },
    ...(topic ? [{ name: "partitions", label: "Partitions", value: partition === undefined ? "" : String(partition), hint: "Numbers such as 0, 3; by default all of the topic", check: (text) => (numbersOf(text).some((one) => !Number.isSafeInteger(one) || one < 0) ? "must be numbers" : "") }] : []),
  ],
  request: (values, dryRun) => ({ method: "POST", path: "/v1/elections", body: { type: values.type, partitions: chosen(topic, values), ...(dryRun ? { dry_run: true } : {}) } }),
  cli: (values) => ["elect", values.type, ...(chosen(topic, values) ?? []).map((one) => named(`${one.topic}-${one.partition}`))],
  dryRun: true,
  confirm: (values) => (values.type === "unclean" ? "Elect leaders even from replicas that miss records? What is lost cannot be restored." : "Elect preferred leaders?"),
  show: (body) => html`<${Elected} rows=${body.elected} />`,
});

function Elected({ rows }) {
  if (!rows.length) return html`<p>No leader changes.</p>`;
  const risky = rows.filter((row) => row.may_lose.length);
  return html`<p>${plural(rows.length, "partition gets", "partitions get")} another leader.</p>
    ${risky.length > 0 && html`<${Notice} tone="bad" title=${`${plural(risky.length, "partition")} may lose records`}><p>Records that only the named brokers have are lost.</p><//>`}
    <div class="table-scroll" tabindex="0" role="region" aria-label="Elections"><table><caption class="vh">Elections</caption>
      <thead><tr>${["Partition", "Leader", "Before", "Epoch", "Why", "May lose what only these have"].map((title) => html`<th scope="col">${title}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, 100).map((row) => html`<tr><th scope="row">${row.topic}-${row.partition}</th><td>${row.leader}</td><td>${row.previous_leader < 0 ? "none" : row.previous_leader}</td><td>${count(row.leader_epoch)}</td><td>${row.reason}</td><td>${row.may_lose.length ? `broker ${row.may_lose.join(", ")}` : "–"}</td></tr>`)}</tbody></table></div>
    ${rows.length > 100 && html`<p class="muted">… and ${count(rows.length - 100)} more</p>`}`;
}
