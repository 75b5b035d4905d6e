// The actions on a consumer group: its offsets, its members, the group itself.

import { named } from "../lib/commands.js";
import { html } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { unixMs } from "../lib/times.js";
import { groupPath } from "../store/group_lags.js";
import { refresh } from "../store/polled.js";

const changed = (group) => () => ["", "/lag", "/offsets"].forEach((below) => refresh(groupPath(group, below)));

/** Have the coordinator compute the assignment again. */
export const rebalance = (group) => ({
  operation: "rebalance_group",
  on: { group },
  title: `Rebalance ${group}`,
  verb: "Rebalance",
  about: "The coordinator computes the assignment again. If it is what the members have, nobody stops.",
  request: () => ({ method: "POST", path: groupPath(group, "/rebalance") }),
  cli: () => ["groups", "rebalance", named(group)],
  show: (body) => html`<p>The group is ${body.state}, generation ${count(body.generation)}.</p>`,
  done: changed(group),
});

export const evictMember = (group, member) => ({
  operation: "evict_member",
  on: { group },
  title: `Evict ${member}`,
  verb: "Evict",
  about: "Its partitions go to the other members once it has certainly stopped. A consumer that is alive joins again.",
  danger: true,
  request: () => ({ method: "DELETE", path: groupPath(group, `/members/${encodeURIComponent(member)}`) }),
  cli: () => ["groups", "evict", named(group), named(member)],
  show: (body) => html`<p>${body.member} is no longer a member of ${body.group}.</p>`,
  done: changed(group),
});

export const deleteGroup = (group) => ({
  operation: "delete_group",
  on: { group },
  title: `Delete ${group}`,
  verb: "Delete",
  about: "The group and its committed offsets are deleted. It must have no members.",
  danger: true,
  confirm: () => `Delete the group ${group} with its committed offsets?`,
  request: () => ({ method: "DELETE", path: groupPath(group) }),
  cli: () => ["groups", "delete", named(group), "--yes"],
  show: (body) => html`<p>${body.group} is deleted.</p>`,
  next: () => ({ to: "/groups", text: "All groups" }),
  done: () => refresh("/v1/groups"),
});

const topicsOf = (rows) => [...new Set(rows.filter((row) => row.committed != null).map((row) => row.topic))].sort();
const topicField = (rows) => ({
  name: "topic", label: "Topic", type: "select",
  options: [{ value: "", label: "all topics with committed offsets" }, ...topicsOf(rows).map((name) => ({ value: name, label: name }))],
});

export const deleteOffsets = (group, rows) => ({
  operation: "delete_offsets",
  on: { group },
  title: `Delete offsets of ${group}`,
  verb: "Delete offsets",
  about: "Consumers then begin where auto.offset.reset says. The group must have no members.",
  danger: true,
  fields: [topicField(rows)],
  confirm: ({ topic }) => `Delete the committed offsets of ${group}${topic ? ` for ${topic}` : ""}?`,
  request: ({ topic }) => ({ method: "DELETE", path: groupPath(group, `/offsets${topic ? `?topic=${encodeURIComponent(topic)}` : ""}`) }),
  cli: ({ topic }) => ["groups", "delete-offsets", named(group), ...(topic ? ["--topic", topic] : []), "--yes"],
  show: (body) => html`<p>${plural(body.deleted, "offset")} deleted.</p>`,
  done: changed(group),
});

const EXPLICIT = ["offset", "shift"];
const isExplicit = ({ to }) => EXPLICIT.includes(to);

const numbersOf = (text) => text.split(/[\s,]+/).filter(Boolean).map(Number);

/** @param {string} group @param {{topic: string, partition: number, committed: number | null, end: number | null}[]} rows */
export const resetOffsets = (group, rows) => ({
  operation: "reset_offsets",
  on: { group },
  title: `Reset offsets of ${group}`,
  verb: "Reset offsets",
  about: "Sets where the group begins to read, for all partitions or for none. The group must have no members.",
  danger: true,
  dryRun: true,
  fields: [
    { name: "to", label: "To", type: "select", required: true, options: [
      { value: "earliest", label: "the earliest record" }, { value: "latest", label: "the end" },
      { value: "timestamp", label: "a time" }, { value: "offset", label: "an offset" }, { value: "shift", label: "a shift of the committed offset" },
    ] },
    topicField(rows),
    { name: "partitions", label: "Partitions", hint: "Such as 0, 1, 2; by default all with committed offsets", when: isExplicit,
      check: (text) => (numbersOf(text).every((number) => Number.isSafeInteger(number) && number >= 0) ? "" : "must be whole numbers") },
    { name: "time", label: "Time", required: true, hint: "ISO 8601 (UTC unless it names a zone), or Unix ms", when: ({ to }) => to === "timestamp",
      check: (text) => (Number.isNaN(unixMs(text)) ? "such as 2026-01-31T12:00:00 or Unix ms" : "") },
    { name: "offset", label: "Offset", type: "number", required: true, least: 0, when: ({ to }) => to === "offset" },
    { name: "shift", label: "Shift in records", type: "number", required: true, hint: "Negative to read records again; it stays between 0 and the end", when: ({ to }) => to === "shift" },
  ],
  request: (values, dryRun) => ({
    method: "POST",
    path: groupPath(group, "/offsets/reset"),
    body: { ...targetOf(values, rows), ...(dryRun ? { dry_run: true } : {}) },
  }),
  cli: (values, dryRun) => ["groups", "reset", named(group), ...targetWords(values, rows), ...(dryRun ? ["--dry-run"] : ["--yes"])],
  show: (body) => html`<div class="table-scroll"><table><caption class="vh">Offsets before and after</caption>
    <thead><tr><th scope="col">Partition</th><th scope="col" class="number">Before</th><th scope="col" class="number">After</th></tr></thead>
    <tbody>${body.offsets.map((row) => html`<tr><th scope="row">${row.topic}-${row.partition}</th><td class="number">${count(row.previous)}</td><td class="number">${count(row.offset)}</td></tr>`)}</tbody></table></div>`,
  done: changed(group),
});

function targetOf(values, rows) {
  if (isExplicit(values)) return { to: "offsets", offsets: explicit(values, rows) };
  return {
    to: values.to,
    ...(values.to === "timestamp" ? { timestamp: unixMs(values.time) } : {}),
    ...(values.topic ? { topics: [values.topic] } : {}),
  };
}

function explicit({ to, topic, partitions, offset, shift }, rows) {
  const numbers = numbersOf(partitions ?? "");
  return rows
    .filter((row) => row.committed != null && (!topic || row.topic === topic) && (!numbers.length || numbers.includes(row.partition)))
    .map((row) => ({ topic: row.topic, partition: row.partition, offset: to === "offset" ? Number(offset) : shifted(row, Number(shift)) }));
}

const shifted = ({ committed, end }, by) => Math.max(0, Math.min(end ?? Infinity, committed + by));

function targetWords(values, rows) {
  if (isExplicit(values)) return explicit(values, rows).flatMap((one) => ["--offset", `${one.topic}-${one.partition}=${one.offset}`]);
  return ["--to", values.to === "timestamp" ? values.time.trim() : values.to, ...(values.topic ? ["--topic", values.topic] : [])];
}
