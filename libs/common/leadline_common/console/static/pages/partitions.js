// All partitions of the cluster by broker.

import { html } from "../lib/dom.js";
import { location, setQuery } from "../lib/router.js";
import { derived } from "../store/cluster.js";
import { health } from "../store/health.js";
import { ActionButton } from "../components/action_form.js";
import { Page } from "../components/page.js";
import { PartitionGrid } from "../components/partition_grid.js";
import { electLeaders } from "./topic_actions.js";

const all = derived((cluster) => {
  const rows = [];
  for (const [topic, found] of cluster.topics) for (const row of found.rows.values()) rows.push({ topic, row });
  return rows;
});

const SHOWN = { "": "all", offline: "without a leader", under: "under-replicated" };

export function Partitions() {
  const show = location.value.query.get("show") ?? "";
  const rows = show === "offline" ? health().offline : show === "under" ? health().under : all();
  const tools = html`<label class="buttons"><span>Show</span><select value=${show} onChange=${(event) => setQuery({ show: event.target.value })}>
    ${Object.entries(SHOWN).map(([value, text]) => html`<option value=${value} selected=${value === show}>${text}</option>`)}</select></label>`;
  return html`<${Page} title="Partitions" about="Every partition, with the role of each broker's replica."
      actions=${html`<${ActionButton} action=${electLeaders()}>Elect leaders …<//>`}>
    <${PartitionGrid} caption="Partitions by broker" rows=${rows} tools=${tools} empty=${show ? "There is none in this state." : undefined} />
  <//>`;
}
