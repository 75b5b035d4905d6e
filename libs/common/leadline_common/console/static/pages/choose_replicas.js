// Choose partitions by hand, and give them other replicas.

import { html, useState } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { derived } from "../store/cluster.js";
import { ActionButton } from "../components/action_form.js";
import { Table } from "../components/table.js";
import { reassign } from "./task_actions.js";

const all = derived((cluster) => {
  const rows = [];
  for (const [topic, found] of cluster.topics) for (const row of found.rows.values()) rows.push({ topic, row, name: `${topic}-${row[0]}` });
  return rows;
});

export function ChooseReplicas() {
  const [chosen, setChosen] = useState(new Set());
  const rows = all();
  const turn = (name) => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    setChosen(next);
  };
  const picked = rows.filter(({ name }) => chosen.has(name));
  const tools = picked.length > 0 && html`<span class="buttons">
    <${ActionButton} action=${reassign(picked)} class="primary">Reassign ${plural(picked.length, "chosen partition")} …<//>
    <button type="button" onClick=${() => setChosen(new Set())}>Choose none</button></span>`;
  return html`<p class="muted">Choose partitions; the form begins with the replicas that they have.</p>
    <${Table} caption="Partitions to choose" rows=${rows} rowKey=${(one) => one.name} filter=${(one) => one.name} noun="partition" tools=${tools}
      columns=${columnsOf(chosen, turn)} empty="There are no partitions." />`;
}

const columnsOf = (chosen, turn) => [
  { title: "Choose", class: "narrow", cell: ({ name }) => html`<input type="checkbox" aria-label=${`Choose ${name}`} checked=${chosen.has(name)} onChange=${() => turn(name)} />` },
  { title: "Partition", header: true, cell: ({ name }) => name },
  { title: "Leader", number: true, sort: ({ row }) => row[1], cell: ({ row }) => (row[1] < 0 ? "none" : row[1]) },
  { title: "ISR", cell: ({ row }) => row[3].join(", ") },
  { title: "Replicas", sort: ({ row }) => row[4].join(), cell: ({ row }) => row[4].join(", ") },
];
