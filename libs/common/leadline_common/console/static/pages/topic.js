// One topic: its partitions by broker with lag. Other parts of a topic are tabs of this page.

import { html } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { health } from "../store/health.js";
import { Notice } from "../components/notice.js";
import { Page } from "../components/page.js";
import { PartitionGrid } from "../components/partition_grid.js";
import { TopicState } from "./topics.js";

/** The tabs of a topic: [path below the topic, title, component({topic})]. */
const TABS = [["", "Partitions", Partitions]];

/** @param {{topic: string, tab?: string}} props */
export function Topic({ topic, tab = "" }) {
  drawn.value;
  const found = cluster.topics.get(topic);
  const shown = TABS.find(([path]) => path === tab);
  if (!found || !shown) {
    return html`<${Page} title=${topic}>${cluster.version > 0 && html`<${Notice} tone="warn" title=${found ? "There is no such page" : "There is no such topic"}>
      <p>It may have been deleted, or you may not see it. <${Link} to="/topics">All topics<//></p><//>`}<//>`;
  }
  const base = `/topics/${encodeURIComponent(topic)}`;
  return html`<${Page} title=${topic} badge=${html`<${TopicState} topic=${health().topics.get(topic)} />`}
      about=${html`${plural(found.rows.size, "partition")}, topic id <span class="mono">${found.topicId}</span>`}>
    <nav class="tabs" aria-label="Parts of the topic">${TABS.map(([path, title]) => html`<${Link} to=${path ? `${base}/${path}` : base} current=${path === tab}>${title}<//>`)}</nav>
    <${shown[2]} topic=${topic} />
  <//>`;
}

function Partitions({ topic }) {
  drawn.value;
  const rows = [...(cluster.topics.get(topic)?.rows.values() ?? [])].map((row) => ({ topic, row })).sort((a, b) => a.row[0] - b.row[0]);
  return html`<${PartitionGrid} caption=${`Partitions of ${topic} by broker`} topic=${topic} rows=${rows} />`;
}
