// The overview of a moment of the past: a slider over the history of the cluster, and what the
// brokers, leaders and ISRs were then, with the events around it.

import { html, useEffect, useMemo, useState } from "../lib/dom.js";
import { count, plural, time } from "../lib/format.js";
import { Link, location, setQuery } from "../lib/router.js";
import { unixMs } from "../lib/times.js";
import { roleOf } from "../store/health.js";
import { useEnds, usePast } from "../store/past.js";
import { announce } from "../components/announcer.js";
import { Badge, Stat } from "../components/badge.js";
import { Failure, Notice } from "../components/notice.js";
import { Card } from "../components/page.js";
import { Legend, ReplicaMark } from "../components/partition_grid.js";
import { Table } from "../components/table.js";
import { aboutOf } from "./audit.js";

export function Past() {
  const wanted = Number(location.value.query.get("at")) || null;
  const { oldest, newest } = useEnds(wanted == null);
  const shown = usePast(wanted);
  const go = (at) => setQuery({ at: at == null ? null : String(Math.round(at)) });
  useEffect(() => {
    if (shown.found) announce(`The cluster at ${time(shown.at)}: ${summary(shown.found)}`);
  }, [shown.found]);
  return html`<${Card} title="Moment"><${Moment} wanted=${wanted} oldest=${oldest} newest=${newest} shown=${shown} go=${go} /><//>
    ${shown.error && html`<${Failure} error=${shown.error} />`}
    ${wanted == null ? html`<p class="muted">This is now. Move the slider, or choose an event, to see the cluster as it was; <${Link} to="/">the overview<//> shows it as it is.</p>`
      : shown.found ? html`<${State} shown=${shown} go=${go} />` : !shown.error && html`<p class="muted">Rebuilding that state from the audit …</p>`}`;
}

const summary = (found) => `${plural([...found.brokers.values()].filter((one) => one.live).length, "live broker")}, ${count(found.offline.length)} partitions without a leader, ${count(found.under.length)} under-replicated`;

function Moment({ wanted, oldest, newest, shown, go }) {
  const [now, setNow] = useState(Date.now());
  const [typed, setTyped] = useState("");
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 5_000);
    return () => clearInterval(timer);
  }, []);
  const most = Math.max(now, wanted ?? 0);
  const least = Math.min(oldest || most - 1_000, wanted ?? most);
  const at = wanted ?? most;
  // A key moves by a thousandth; the buttons move by events.
  const step = Math.max(1, Math.round((most - least) / 1_000));
  const slide = (event) => {
    const next = Number(event.target.value);
    go(next > most - step ? null : next);
  };
  const [before, after] = [shown.earlier.find((one) => one.time < at), shown.later.find((one) => one.time > at)];
  const jump = (event) => {
    event.preventDefault();
    if (!Number.isNaN(unixMs(typed))) go(unixMs(typed));
  };
  const wrong = typed !== "" && Number.isNaN(unixMs(typed));
  return html`<div class="moment">
    <div class="buttons"><output aria-label="Time that is shown">${wanted == null ? "Now" : time(at)}</output>${shown.busy && html`<span class="muted">reading …</span>`}</div>
    <label><span class="vh">Time</span><input type="range" min=${least} max=${most} step=${step} value=${at} aria-valuetext=${wanted == null ? "now" : time(at)} onInput=${slide} /></label>
    <div class="ends"><span>${oldest ? time(oldest) : "…"}</span><span>now</span></div>
    <div class="buttons">
      <${Jump} to=${wanted == null ? newest : before?.time} go=${go}>Previous event<//>
      <${Jump} to=${wanted == null ? undefined : after?.time} go=${go}>Next event<//>
      <button type="button" aria-disabled=${wanted == null ? "true" : undefined} onClick=${() => go(null)}>Back to now</button>
      <form class="buttons" onSubmit=${jump} aria-label="Go to a time"><label class="buttons"><span>Time</span>
        <input type="text" value=${typed} placeholder="2026-01-31T12:00:00" aria-invalid=${wrong ? "true" : undefined} onInput=${(event) => setTyped(event.target.value)} /></label>
        <button type="submit">Go</button><span class="muted">ISO 8601, UTC unless it names a zone</span></form>
    </div>
  </div>`;
}

const Jump = ({ to, go, children }) => html`<button type="button" aria-disabled=${to ? undefined : "true"} onClick=${() => to && go(to)}>${children}</button>`;

function State({ shown, go }) {
  const { body, found } = shown;
  const live = [...found.brokers.values()].filter((one) => one.live).length;
  return html`${!body.complete && html`<${Notice} tone="warn" title="This state is not complete"><p>${body.reason ?? "Entries of the audit are missing."}</p><//>`}
    <dl class="stats" aria-label="The cluster then">
      <${Stat} name="Active controller">${body.controller == null ? "none" : html`<span class="name">controller ${body.controller}</span>`}<//>
      <${Stat} name="Live brokers" tone=${body.brokers && live < found.brokers.size ? "bad" : undefined} more=${body.brokers && live < found.brokers.size && `of ${count(found.brokers.size)} with replicas`}>${body.brokers ? count(live) : "not known"}<//>
      <${Stat} name="Partitions" more=${plural(found.topics.size, "topic")}>${count(found.partitions)}<//>
      <${Stat} name="Without a leader" tone=${found.offline.length ? "bad" : undefined}>${count(found.offline.length)}<//>
      <${Stat} name="Under-replicated" tone=${found.under.length ? "warn" : undefined}>${count(found.under.length)}<//>
    </dl>
    <${Card} title="Events around it"><${Events} shown=${shown} go=${go} /><//>
    <${Card} title="Brokers then"><${Table} caption="Brokers at that time" rows=${[...found.brokers.values()].sort((a, b) => a.id - b.id)} rowKey=${(row) => row.id} noun="broker" columns=${brokerColumns(body.brokers !== null)} height="20rem" /><//>
    <${Card} title="Partitions then"><${Partitions} found=${found} known=${body.brokers !== null} /><//>
    <p class="muted">After the transaction ${body.version}, which entry <${Link} to=${`/history/${body.audit_id}`}>${body.audit_id}<//> recorded at ${time(body.time)}.</p>`;
}

function Events({ shown, go }) {
  const rows = [...[...shown.later].reverse().map((entry) => ({ entry, when: "later" })), ...shown.earlier.map((entry, i) => ({ entry, when: i ? "earlier" : "shown" }))];
  const words = { later: "after it: ", shown: "the last before it: ", earlier: "" };
  return html`<ul class="events">${rows.map(({ entry, when }) => html`<li key=${entry.id} data-when=${when}>
    <span><button type="button" class="small" onClick=${() => go(entry.time)} aria-label=${`Show the cluster at ${time(entry.time)}, entry ${entry.id}`}>${time(entry.time)}</button></span>
    <span><span class="vh">${words[when]}</span><${Link} to=${`/history/${entry.id}`}>${entry.kind.replaceAll("_", " ")}<//> ${aboutOf(entry)}${entry.reason ? `: ${entry.reason}` : ""} <span class="muted">by ${entry.actor}</span></span></li>`)}</ul>`;
}

const brokerColumns = (known) => [
  { title: "Broker", header: true, sort: (row) => row.id, cell: (row) => row.id },
  { title: "State", sort: (row) => (row.live ? 1 : 0), cell: (row) => (!known ? "not known" : row.live ? html`<${Badge} tone="good">live<//>` : html`<${Badge} tone="bad">down<//>`) },
  { title: "Leaders", number: true, sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
  { title: "Replicas", number: true, sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
  { title: "Out of sync", number: true, sort: (row) => row.behind, cell: (row) => count(row.behind) },
];

function Partitions({ found, known }) {
  const [only, setOnly] = useState(false);
  const brokers = [...found.brokers.values()].sort((a, b) => a.id - b.id);
  const rows = useMemo(() => (only ? [...found.offline, ...found.under.filter(({ row }) => row[1] >= 0)] : found.rows), [found, only]);
  const tools = html`<label class="buttons"><input type="checkbox" checked=${only} onChange=${(event) => setOnly(event.target.checked)} /><span>Only those that need attention</span></label>`;
  return html`<${Legend} /><${Table} caption="Partitions by broker at that time" class="grid" rows=${rows} rowKey=${keyOf} filter=${keyOf} noun="partition" tools=${tools} columns=${partitionColumns(brokers, known)}
    empty=${only ? "All partitions had a leader and all their replicas in sync." : "There were no partitions."} />`;
}

const keyOf = ({ topic, row }) => `${topic}-${row[0]}`;

const partitionColumns = (brokers, known) => [
  { title: "Partition", header: true, class: "narrow", sort: (one) => one.topic, cell: (one) => html`<${Link} to=${`/history/partition?topic=${encodeURIComponent(one.topic)}&partition=${one.row[0]}`}>${keyOf(one)}<//>` },
  { title: "Leader", number: true, class: "narrow", sort: ({ row }) => row[1], cell: ({ row }) => (row[1] < 0 ? html`<${Badge} tone="bad">none<//>` : row[1]) },
  { title: "Epoch", number: true, class: "narrow", sort: ({ row }) => row[2], cell: ({ row }) => count(row[2]) },
  { title: "ISR", class: "narrow", cell: ({ row }) => row[3].join(", ") || "empty" },
  ...brokers.map((broker) => ({
    title: html`Broker ${broker.id}<small>${known && !broker.live ? "down" : ""}</small>`,
    class: "broker replica",
    cell: ({ row }) => {
      const role = roleOf(row, broker.id, !known || broker.live);
      return role ? html`<${ReplicaMark} role=${role} />` : "";
    },
  })),
];
