// One consumer group: who reads what, how far behind, and the actions on its offsets and members.

import { html } from "../lib/dom.js";
import { count, duration, plural, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { SERVICE } from "../lib/site.js";
import { groupPath, useLagOverTime } from "../store/group_lags.js";
import { usePolled } from "../store/polled.js";
import { ActionButton } from "../components/action_form.js";
import { Badge, Stat } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Elsewhere } from "../components/elsewhere.js";
import { Failure, Notice, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { deleteGroup, deleteOffsets, evictMember, rebalance, resetOffsets } from "./group_actions.js";
import { GroupState } from "./groups.js";

/** @param {{group: string}} props */
export function Group({ group }) {
  const here = SERVICE === "broker";
  const about = usePolled(here ? groupPath(group) : null, 2_000);
  const lag = usePolled(here ? groupPath(group, "/lag") : null, 3_000);
  const offsets = usePolled(here ? groupPath(group, "/offsets") : null, 5_000);
  if (!here) return html`<${Page} title=${group}><${Elsewhere} what="Consumer groups" /><//>`;
  if (about.error?.status === 404) return html`<${Page} title=${group}><${Gone} /><//>`;
  const rows = rowsOf(lag.data, offsets.data);
  return html`<${Page} title=${group} badge=${about.data && html`<${GroupState} state=${about.data.state} />`}
      about=${html`Consumer group. <${Link} to="/groups">All groups<//>`} actions=${html`<${Actions} group=${group} rows=${rows} missing=${lag.data ? "" : "the committed offsets"} />`}>
    ${about.data && about.error && html`<${Failure} error=${about.error} />`}
    ${about.data ? html`<${Figures} about=${about.data} lag=${lag} />
      <${LagChart} lag=${lag} />
      <${Members} group=${group} members=${about.data.members} rows=${rows} />
      <${Partitions} rows=${rows} lag=${lag} />` : html`<${Waiting} of=${about} />`}
  <//>`;
}

const Gone = () => html`<${Notice} tone="warn" title="There is no such group">
  <p>It may have been deleted, or you may not see it. <${Link} to="/groups">All groups<//></p><//>`;

/** The partitions with their lag, and with the time of the commit. */
function rowsOf(lag, offsets) {
  const committed = new Map((offsets?.offsets ?? []).map((one) => [`${one.topic}-${one.partition}`, one]));
  return (lag?.partitions ?? []).map((row) => ({ ...row, name: `${row.topic}-${row.partition}`, at: committed.get(`${row.topic}-${row.partition}`)?.time }));
}

const Actions = ({ group, rows, missing }) => html`
  <${ActionButton} action=${rebalance(group)}>Rebalance …<//>
  <${ActionButton} action=${resetOffsets(group, rows)} missing=${missing} class="primary">Reset offsets …<//>
  <${ActionButton} action=${deleteOffsets(group, rows)} missing=${missing}>Delete offsets …<//>
  <${ActionButton} action=${deleteGroup(group)} class="danger">Delete group …<//>`;

function Figures({ about, lag }) {
  const since = about.rebalancing_since;
  return html`${about.last_error && html`<${Notice} tone="bad" title="The last rebalance failed"><p>${about.last_error}</p><//>`}
    <dl class="stats">
      <${Stat} name="Total lag" more="records">${count(lag.data?.total)}<//>
      <${Stat} name="Members">${count(about.members.length)}<//>
      <${Stat} name="Generation" more=${`coordinator epoch ${about.coordinator_epoch}`}>${count(about.generation)}<//>
      <${Stat} name="Assignment" more=${about.protocol}>${about.assignor}<//>
      ${since && html`<${Stat} name="Rebalancing" tone="warn">for ${duration(Math.max(0, Date.now() - since))}<//>`}
    </dl>
    ${about.last_rebalance && html`<p class="muted">Last rebalance: ${about.last_rebalance}</p>`}`;
}

function LagChart({ lag }) {
  const { times, series } = useLagOverTime(lag);
  return html`<${Card} title="Lag over time">
    ${lag.error && !lag.data ? html`<${Failure} error=${lag.error} />` : html`<${Chart} title="Records still to read" times=${times} series=${series} format=${count} />
      <p class="muted">Since this page was opened.</p>`}
  <//>`;
}

function Members({ group, members, rows }) {
  const behind = new Map();
  for (const row of rows) if (row.member) behind.set(row.member, (behind.get(row.member) ?? 0) + (row.lag ?? 0));
  return html`<${Card} title="Members: who reads what"><${Table} caption="Members" rows=${members} rowKey=${(row) => row.id} filter=${(row) => `${row.id} ${row.client_id} ${ownedText(row)}`}
    noun="member" columns=${memberColumns(group, behind)} empty="The group has no members now." height="24rem" /><//>`;
}

const ownedText = (member) => member.owned.map(([topic, partitions]) => `${topic}: ${ranges(partitions)}`).join("; ") || "nothing";

/** [0, 1, 2, 5] -> "0–2, 5". */
export function ranges(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}–${last}`)).join(", ");
}

const memberColumns = (group, behind) => [
  { title: "Member", header: true, sort: (row) => row.id, cell: (row) => html`<span class="mono">${row.id}</span>` },
  { title: "Reads", cell: (row) => ownedText(row) },
  { title: "Lag", number: true, sort: (row) => behind.get(row.id) ?? 0, cell: (row) => count(behind.get(row.id) ?? 0) },
  { title: "Connection", sort: (row) => (row.connected ? 1 : 0), cell: (row) => (row.connected ? html`<${Badge} tone="good">connected<//>` : html`<${Badge} tone="warn">not connected<//>`) },
  { title: "Client", sort: (row) => row.client_id, cell: (row) => row.client_id + (row.instance_id ? ` (${row.instance_id})` : "") },
  { title: "Subscription", cell: (row) => (row.pattern ? html`pattern <code>${row.pattern}</code>` : (row.topics ?? []).join(", ")) },
  { title: "Threads", number: true, sort: (row) => row.threads, cell: (row) => count(row.threads) },
  { title: "Action", cell: (row) => html`<${ActionButton} action=${evictMember(group, row.id)} class="small" aria-label=${`Evict ${row.id} …`}>Evict …<//>` },
];

function Partitions({ rows, lag }) {
  const unknown = rows.filter((row) => row.lag == null).length;
  return html`<${Card} title="Partitions">
    ${unknown > 0 && html`<p class="muted">The lag of ${plural(unknown, "partition")} is not known: nothing is committed there yet, or the leader does not answer.</p>`}
    ${lag.data ? html`<${Table} caption="Offsets by partition" rows=${rows} rowKey=${(row) => row.name} filter=${(row) => `${row.name} ${row.member ?? ""}`}
      noun="partition" columns=${PARTITION_COLUMNS} empty="The group reads nothing and has committed no offset." />` : html`<${Waiting} of=${lag} />`}
  <//>`;
}

const PARTITION_COLUMNS = [
  { title: "Partition", header: true, sort: (row) => `${row.topic}-${String(row.partition).padStart(9, "0")}`, cell: (row) => html`<${Link} to=${`/topics/${encodeURIComponent(row.topic)}`}>${row.name}<//>` },
  { title: "Committed", number: true, sort: (row) => row.committed ?? -1, cell: (row) => count(row.committed) },
  { title: "End", number: true, sort: (row) => row.end ?? -1, cell: (row) => count(row.end) },
  { title: "Lag", number: true, sort: (row) => row.lag ?? -1, cell: (row) => count(row.lag) },
  { title: "Read by", sort: (row) => row.member ?? "", cell: (row) => (row.member ? html`<span class="mono">${row.member}</span>` : html`<span class="muted">nobody</span>`) },
  { title: "Committed at", sort: (row) => row.at ?? 0, cell: (row) => time(row.at) },
];
