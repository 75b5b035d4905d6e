// Settings of the cluster, a broker or a topic: each with its value and where that comes from.

import { html, useState } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { refresh, usePolled } from "../store/polled.js";
import { may } from "../store/me.js";
import { ActionForm } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Dialog } from "../components/dialog.js";
import { Notice, Waiting } from "../components/notice.js";
import { Page } from "../components/page.js";
import { Table } from "../components/table.js";

/**
 * Whose settings: the API's path, the words of the command, and the operations.
 * @typedef {{level: "cluster" | "broker" | "topic", path: string, words: string[], read: string,
 *   alter: string, on: {topic?: string}, title: string}} Owner
 */

/** @returns {Owner} */
export const ofCluster = () => ({ level: "cluster", path: "/v1/configs", words: ["--cluster"], read: "read_cluster_configs", alter: "alter_cluster_configs", on: {}, title: "the cluster" });
/** @returns {Owner} */
export const ofBroker = (id) => ({ level: "broker", path: `/v1/brokers/${id}/configs`, words: ["--broker", String(id)], read: "read_broker_configs", alter: "alter_broker_configs", on: {}, title: `broker ${id}` });
/** @returns {Owner} */
export const ofTopic = (topic) => ({ level: "topic", path: `/v1/topics/${encodeURIComponent(topic)}/configs`, words: ["--topic", topic], read: "read_topic_configs", alter: "alter_topic_configs", on: { topic }, title: topic });

export const ClusterSettings = () => html`<${Page} title="Settings" about="Settings of the whole cluster. Brokers and topics have their own, which override these: see their pages.">
  <${Settings} owner=${ofCluster()} /><//>`;

/** The table of settings, with their changes. @param {{owner: Owner}} props */
export function Settings({ owner }) {
  const why = may(owner.read, owner.on);
  const found = usePolled(why ? null : owner.path, 5_000);
  const [own, setOwn] = useState(false);
  const [open, setOpen] = useState(null); // {row, reset}
  if (why) return html`<${Notice} tone="warn" title="Not allowed">${why}<//>`;
  if (!found.data) return html`<${Waiting} of=${found} />`;
  const rows = own ? found.data.configs.filter((row) => row.source !== "default") : found.data.configs;
  const problems = Object.entries(found.data.problems);
  return html`
    ${problems.length > 0 && html`<${Notice} tone="warn" title=${`${plural(problems.length, "value")} in ZooKeeper cannot be used`}><ul>${problems.map(([name, reason]) => html`<li><code>${name || "all"}</code>: ${reason}</li>`)}</ul><//>`}
    <${Table} caption=${`Settings of ${owner.title}`} rows=${rows} rowKey=${(row) => row.name} noun="setting" columns=${columns(owner, setOpen)}
      filter=${(row) => `${row.name} ${row.aliases.join(" ")} ${row.meaning} ${row.value ?? ""}`}
      tools=${html`<label class="buttons"><input type="checkbox" checked=${own} onChange=${(event) => setOwn(event.target.checked)} /> <span>Only those that are set</span></label>`} />
    ${open && html`<${Dialog} title=${open.reset ? `Reset ${open.row.name}` : `Change ${open.row.name}`} onClose=${() => setOpen(null)}>
      <${About} row=${open.row} /><${ActionForm} action=${open.reset ? resetting(owner, open.row) : changing(owner, open.row)} /><//>`}`;
}

const isOwn = (owner, row) => row.synonyms.some((one) => one.source === owner.level);
const valueOf = (row) => (row.sensitive ? "hidden" : row.value || "–");

function columns(owner, open) {
  const forbidden = may(owner.alter, owner.on);
  const why = (row) => forbidden || (row.read_only ? "It cannot be changed here while services run" : "");
  const button = (row, reset, off) => html`<button type="button" class="small" aria-label=${`${reset ? "Reset" : "Edit"} ${row.name}`} aria-disabled=${off ? "true" : undefined} title=${off || undefined} aria-description=${off || undefined} onClick=${() => !off && open({ row, reset })}>${reset ? "Reset" : "Edit"}</button>`;
  return [
    { title: "Setting", header: true, class: "narrow", sort: (row) => row.name, cell: (row) => html`<span title=${row.meaning}>${row.name}</span>` },
    { title: "Value", class: "cut", cell: (row) => html`<span class="mono">${valueOf(row)}</span> <span class="muted">${row.value && row.unit}</span>` },
    { title: "From", class: "narrow", sort: (row) => row.source, cell: (row) => html`<${Badge} tone=${row.source === "default" ? undefined : "info"}>${row.source}<//>` },
    { title: "Default", class: "narrow cut", cell: (row) => html`<span class="mono">${row.default || "–"}</span>` },
    { title: "Scope", class: "narrow", sort: (row) => row.scope, cell: (row) => row.scope },
    { title: "Change", class: "narrow", cell: (row) => html`<span class="buttons row">${button(row, false, why(row))}${isOwn(owner, row) && button(row, true, why(row))}</span>` },
  ];
}

/** What a setting means, and its values at all levels. */
const About = ({ row }) => html`<p>${row.meaning}</p>
  <dl class="facts">
    <div><dt>In force</dt><dd class="mono">${valueOf(row)}</dd></div>
    <div><dt>Default</dt><dd class="mono">${row.default || "–"}</dd></div>
    ${row.unit && html`<div><dt>Unit</dt><dd>${row.unit}</dd></div>`}
    ${row.synonyms.map((one) => html`<div><dt>${one.source}: ${one.name}</dt><dd class="mono">${one.value ?? "hidden"}</dd></div>`)}</dl>`;

function problemOfValue(row, value) {
  if (row.type !== "integer" || value === "") return "";
  if (!/^-?\d{1,19}$/.test(value)) return "must be a whole number";
  if (row.minimum !== null && BigInt(value) < BigInt(row.minimum)) return `must be at least ${row.minimum}`;
  if (row.maximum !== null && BigInt(value) > BigInt(row.maximum)) return `must be at most ${row.maximum}`;
  return "";
}

/** The values that a setting can have, null if they are not a few. */
const choicesOf = (row) => (row.type === "boolean" ? ["true", "false"] : row.type.includes(" | ") ? row.type.split(" | ") : null);

function alteration(owner, changes, words) {
  return {
    operation: owner.alter,
    on: owner.on,
    request: (values, dryRun) => ({ method: "PATCH", path: owner.path, body: { ...changes(values), ...(dryRun ? { dry_run: true } : {}) } }),
    cli: (values) => ["configs", ...words(values), ...owner.words],
    dryRun: true,
    done: () => refresh(owner.path),
    show: (body) => html`${body.changed.length ? html`<ul>${body.changed.map((one) => html`<li><code>${one.name}</code>: ${one.before ?? "not set"} → ${one.after ?? "not set"}</li>`)}</ul>` : html`<p>There is nothing to change.</p>`}`,
  };
}

const changing = (owner, row) => ({
  ...alteration(owner, (values) => ({ set: { [row.name]: values.value } }), (values) => ["set", `${row.name}=${values.value}`]),
  title: `Change ${row.name}`,
  verb: "Change",
  fields: [{
    name: "value", label: "Value", required: true, value: row.sensitive ? "" : row.value ?? "", hint: [row.unit, row.minimum !== null && `at least ${row.minimum}`, row.maximum !== null && `at most ${row.maximum}`].filter(Boolean).join(", "),
    ...(choicesOf(row) ? { type: "select", options: choicesOf(row).map((value) => ({ value, label: value })) } : { check: (value) => problemOfValue(row, value) }),
  }],
  confirm: (values) => `Set ${row.name} of ${owner.title} to ${values.value}? It takes effect within moments.`,
});

const resetting = (owner, row) => ({
  ...alteration(owner, () => ({ remove: [row.name] }), () => ["unset", row.name]),
  title: `Reset ${row.name}`,
  verb: "Reset",
  confirm: () => `Remove ${row.name} from ${owner.title}? The value of the next level takes effect.`,
});
