// Partitions by broker: a row each, and for each broker the role of its replica. With `topic`, the
// records by which a replica is behind its leader are shown, for the rows in view.
//
//   html`<${PartitionGrid} caption="All partitions" rows=${[{ topic, row }]} />`

import { html, useMemo, useState } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { health, roleOf } from "../store/health.js";
import { useLag } from "../store/lag.js";
import { Badge } from "./badge.js";
import { Table } from "./table.js";

const LETTERS = { leader: "L", "in sync": "F", "out of sync": "O", down: "✕" };
const MEANINGS = { leader: "leader", "in sync": "follower in sync", "out of sync": "follower out of sync", down: "replica on a broker that is down" };

/** The role of a replica as a letter. @param {{role: string, lag?: number | null}} props */
export const ReplicaMark = ({ role, lag }) => html`<span class="replica-mark" data-role=${role}>
  <span aria-hidden="true">${LETTERS[role]}</span><span class="vh">${role}</span>${lag > 0 && html`<span>−${count(lag)}<span class="vh"> records behind</span></span>`}</span>`;

export const Legend = () => html`<ul class="legend" aria-label="Legend">${Object.keys(LETTERS).map((role) => html`<li><${ReplicaMark} role=${role} /> ${MEANINGS[role]}</li>`)}</ul>`;

/**
 * @param {{caption: string, rows: import("../store/health.js").TopicPartition[], topic?: string,
 *   tools?: any, empty?: string}} props
 */
export function PartitionGrid({ caption, rows, topic, tools, empty }) {
  drawn.value;
  const [view, setView] = useState({ first: 0, last: 0 });
  const lag = useLag(topic, view);
  const brokers = [...health().brokers.values()].sort((a, b) => a.id - b.id);
  const signature = brokers.map((one) => `${one.id}${one.live}${cluster.brokers.get(one.id)?.rack}`).join();
  const columns = useMemo(() => columnsOf(brokers, topic, lag), [signature, topic, lag]);
  const look = (first, last, shown) => {
    if (!topic || first >= last) return;
    const numbers = shown.slice(first, last).map(({ row }) => row[0]);
    const next = { first: Math.min(...numbers), last: Math.max(...numbers) };
    if (next.first !== view.first || next.last !== view.last) setView(next);
  };
  return html`<${Legend} /><${Table} caption=${caption} class="grid" columns=${columns} rows=${rows} rowKey=${keyOf} filter=${keyOf}
    noun="partition" tools=${tools} onRange=${look} empty=${empty ?? "There are no partitions."} />`;
}

const keyOf = ({ topic, row }) => `${topic}-${row[0]}`;
const inOrder = ({ topic, row }) => `${topic}-${String(row[0]).padStart(9, "0")}`;

function columnsOf(brokers, topic, lag) {
  return [
    { title: "Partition", header: true, class: "narrow", sort: topic ? ({ row }) => row[0] : inOrder,
      cell: (one) => html`<${Link} to=${`/topics/${encodeURIComponent(one.topic)}/partitions/${one.row[0]}`}>${topic ? one.row[0] : keyOf(one)}<//>` },
    { title: "State", class: "narrow", sort: ({ row }) => (row[1] < 0 ? 0 : row[3].length < row[4].length ? 1 : 2), cell: ({ row }) => html`<${PartitionState} row=${row} />` },
    { title: "Leader", number: true, class: "narrow", sort: ({ row }) => row[1], cell: ({ row }) => (row[1] < 0 ? "none" : row[1]) },
    { title: "Epoch", number: true, class: "narrow", sort: ({ row }) => row[2], cell: ({ row }) => count(row[2]) },
    ...brokers.map((broker) => brokerColumn(broker, lag)),
  ];
}

function rackOf(id) {
  const { rack } = cluster.brokers.get(id) ?? {};
  return rack ? `rack ${rack}` : "";
}

const brokerColumn = (broker, lag) => ({
  title: html`Broker ${broker.id}<small>${broker.live ? rackOf(broker.id) : "down"}</small>`,
  class: "broker replica",
  cell: ({ row }) => {
    const role = roleOf(row, broker.id, broker.live);
    return role ? html`<${ReplicaMark} role=${role} lag=${lag?.get(`${row[0]}/${broker.id}`)} />` : "";
  },
});

const PartitionState = ({ row }) => (row[1] < 0 ? html`<${Badge} tone="bad">no leader<//>` : row[3].length < row[4].length ? html`<${Badge} tone="warn">under-replicated<//>` : html`<${Badge} tone="good">in sync<//>`);
