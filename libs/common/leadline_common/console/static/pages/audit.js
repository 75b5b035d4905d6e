// The audit: a search over all its entries. What is searched for is in the page's address.

import { html, useEffect, useState } from "../lib/dom.js";
import { time } from "../lib/format.js";
import { Link, location, setQuery } from "../lib/router.js";
import { unixMs } from "../lib/times.js";
import { useAudit } from "../store/audit.js";
import { Badge } from "../components/badge.js";
import { Field, problemOf } from "../components/field.js";
import { Failure, Waiting } from "../components/notice.js";
import { Card } from "../components/page.js";
import { Table } from "../components/table.js";

const whole = { type: "number", least: 0 };
const when = { check: (text) => (text && Number.isNaN(unixMs(text)) ? "such as 2026-01-31T12:00:00 or Unix ms" : "") };
const FIELDS = [
  { name: "actor", label: "Actor", hint: "operator, controller-1, broker 2, or a user" },
  { name: "kind", label: "Kind" },
  { name: "outcome", label: "Outcome", type: "select", options: ["", "done", "refused", "dry_run"].map((value) => ({ value, label: value.replace("_", " ") || "any" })) },
  { name: "topic", label: "Topic" },
  { name: "partition", label: "Partition", ...whole, check: (text, values) => (text && !values.topic ? "needs a topic" : "") },
  { name: "broker", label: "Broker", ...whole },
  { name: "group", label: "Group" },
  { name: "config", label: "Settings", type: "select", options: [{ value: "", label: "any" }, { value: "cluster", label: "of the cluster" }] },
  { name: "cause", label: "Cause" },
  { name: "since", label: "From", hint: "ISO 8601 or Unix ms", ...when },
  { name: "until", label: "Before", hint: "ISO 8601 or Unix ms", ...when },
].map((field) => ({ ...field, quiet: true }));

const TIMES = ["since", "until"];

/** The parameters of the address as those of the API; a time is sent as Unix ms. */
function wantedOf(query) {
  return Object.fromEntries(FIELDS.map(({ name }) => {
    const text = query.get(name) ?? "";
    return [name, text && TIMES.includes(name) ? unixMs(text) : text];
  }));
}

export function Audit() {
  const { query } = location.value;
  const found = useAudit(wantedOf(query));
  return html`<${Card} title="Search"><${Search} query=${query} /><//>
    <${Card} title="Entries">
      ${found.first.error && html`<${Failure} error=${found.first.error} />`}
      ${found.error && html`<${Failure} error=${found.error} />`}
      ${found.first.data ? html`<${Table} caption="Audit entries, the newest first" rows=${found.entries} rowKey=${(row) => row.id} filter=${textOf} noun="entry" columns=${COLUMNS} empty="No entry matches." />
        <div class="buttons">${found.more ? html`<button type="button" aria-disabled=${found.busy ? "true" : undefined} onClick=${() => !found.busy && found.older()}>${found.busy ? "Reading …" : "Read older entries"}</button>
          <span class="muted">The filter searches the text of the entries that were read.</span>` : html`<span class="muted">These are all.</span>`}</div>` : !found.first.error && html`<${Waiting} of=${found.first} />`}
    <//>`;
}

function Search({ query }) {
  const text = query.toString();
  const [values, setValues] = useState(() => fromQuery(query));
  useEffect(() => setValues(fromQuery(query)), [text]);
  const wrong = FIELDS.some((field) => problemOf(field, values));
  const search = (event) => {
    event.preventDefault();
    if (!wrong) setQuery(values);
  };
  const clear = () => setQuery(Object.fromEntries(FIELDS.map(({ name }) => [name, ""])));
  return html`<form class="search" role="search" aria-label="Search the audit" onSubmit=${search} novalidate>
    ${FIELDS.map((field) => html`<${Field} key=${field.name} field=${field} values=${values} onChange=${(name, value) => setValues({ ...values, [name]: value })} />`)}
    <div class="buttons"><button type="submit" class="primary" aria-disabled=${wrong ? "true" : undefined}>Search</button>
      <button type="button" onClick=${clear}>Clear</button></div></form>`;
}

const fromQuery = (query) => Object.fromEntries(FIELDS.map(({ name }) => [name, query.get(name) ?? ""]));

/** What an entry is about, in a few words. */
export function aboutOf({ resource, changes, changes_total: total }) {
  const named = Object.entries(resource).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  const [first] = changes;
  const changed = total === 1 ? `${first.topic}-${first.partition}` : total > 1 ? `${total} partitions` : "";
  return [named, changed].filter(Boolean).join(": ") || "–";
}

const textOf = (row) => `${row.id} ${row.kind} ${row.actor} ${row.outcome} ${row.reason} ${row.cause} ${JSON.stringify([row.resource, row.before, row.after, row.changes])}`;

export const Outcome = ({ outcome }) => html`<${Badge} tone=${{ done: "good", refused: "bad", dry_run: "info" }[outcome] ?? "warn"}>${outcome.replace("_", " ")}<//>`;

const COLUMNS = [
  { title: "Entry", header: true, cell: (row) => html`<${Link} to=${`/history/${row.id}`}>${row.id}<//>` },
  { title: "Time", cell: (row) => time(row.time) },
  { title: "Kind", cell: (row) => row.kind.replaceAll("_", " ") },
  { title: "About", cell: aboutOf },
  { title: "Outcome", cell: (row) => html`<${Outcome} outcome=${row.outcome} />` },
  { title: "Actor", cell: (row) => row.actor },
  { title: "Reason", cell: (row) => row.reason || "–" },
  { title: "Cause", cell: (row) => html`<${Link} to=${`/history?cause=${encodeURIComponent(row.cause)}`}>${row.cause}<//>` },
];
