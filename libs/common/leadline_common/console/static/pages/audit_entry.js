// One entry of the audit: what was, what became of it, and each partition that changed.

import { html } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { Allowed } from "../components/allowed.js";
import { Failure, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { Outcome, aboutOf } from "./audit.js";

// An entry never changes.
const SELDOM_MS = 600_000;

/** @param {{id: string}} props */
export function AuditEntry({ id }) {
  const allowed = !may("read_audit_entry");
  const found = usePolled(allowed ? `/v1/audit/${encodeURIComponent(id)}` : null, SELDOM_MS);
  const title = `Audit entry ${id}`;
  if (!allowed) return html`<${Page} title=${title}><${Allowed} to="read_audit_entry" /><//>`;
  if (!found.data) return html`<${Page} title=${title}>${found.error ? html`<${Failure} error=${found.error} />` : html`<${Waiting} of=${found} />`}<//>`;
  const entry = found.data;
  return html`<${Page} title=${title} badge=${html`<${Outcome} outcome=${entry.outcome} />`} about=${html`${entry.kind.replaceAll("_", " ")}. <${Link} to="/history">All entries<//>`}>
    <${Card} title="What happened"><dl class="pairs">
      <dt>Time</dt><dd>${time(entry.time)} (<${Link} to=${`/history/past?at=${entry.time}`}>the cluster then<//>)</dd>
      <dt>Actor</dt><dd>${entry.actor}</dd>
      <dt>About</dt><dd>${aboutOf(entry)}</dd>
      <dt>Reason</dt><dd>${entry.reason || "none was given"}</dd>
      <dt>Cause</dt><dd><${Link} to=${`/history?cause=${encodeURIComponent(entry.cause)}`}>${entry.cause}<//> (all that it changed)</dd>
      <dt>Transaction</dt><dd>${entry.zxid}</dd>
    </dl><//>
    <${Card} title="Before and after"><${Difference} before=${entry.before} after=${entry.after} /><//>
    ${entry.changes_total > 0 && html`<${Card} title="Partitions that changed"><${Table} caption="Partitions that changed" rows=${entry.changes} rowKey=${(row) => `${row.topic}-${row.partition}`} filter=${(row) => `${row.topic}-${row.partition} ${row.reason}`}
      noun="partition" columns=${CHANGES} height="30rem" /><//>`}
    ${Object.keys(entry.zk).length > 0 && html`<${Card} title="Other nodes written"><table><caption class="vh">Nodes of ZooKeeper with their new versions</caption>
      <thead><tr><th scope="col">Node</th><th scope="col" class="number">Version</th></tr></thead>
      <tbody>${Object.entries(entry.zk).map(([path, version]) => html`<tr><th scope="row" class="mono">${path}</th><td class="number">${count(version)}</td></tr>`)}</tbody></table><//>`}
  <//>`;
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const text = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));

/** Two values side by side, member by member; what differs is marked. */
function Difference({ before, after }) {
  if (before == null && after == null) return html`<p class="muted">The entry has no values of its own.</p>`;
  const [was, is] = [before, after].map((value) => (isRecord(value) ? value : value == null ? {} : { value }));
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])].sort();
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label="Before and after"><table class="diff"><caption class="vh">Values before and after</caption>
    <thead><tr><th scope="col">Member</th><th scope="col">Before</th><th scope="col">After</th><th scope="col">Change</th></tr></thead>
    <tbody>${names.map((name) => {
      const changed = text(was[name]) !== text(is[name]);
      return html`<tr data-changed=${changed ? "true" : "false"}><th scope="row">${name}</th><td>${text(was[name])}</td><td>${text(is[name])}</td><td>${changed ? (was[name] === undefined ? "added" : is[name] === undefined ? "removed" : "changed") : "same"}</td></tr>`;
    })}</tbody></table></div>`;
}

/** Leader, epoch and ISR in words. */
export const roles = (found) => (found ? `${found.leader < 0 ? "no leader" : `leader ${found.leader}`}, epoch ${found.leader_epoch}, ISR ${found.isr.join(", ") || "empty"}` : "none");

const CHANGES = [
  { title: "Partition", header: true, sort: (row) => `${row.topic}-${String(row.partition).padStart(9, "0")}`,
    cell: (row) => html`<${Link} to=${`/history/partition?topic=${encodeURIComponent(row.topic)}&partition=${row.partition}`}>${row.topic}-${row.partition}<//>` },
  { title: "Reason", sort: (row) => row.reason, cell: (row) => row.reason },
  { title: "Before", cell: (row) => roles(row.before) },
  { title: "After", cell: (row) => roles(row.after) },
];
