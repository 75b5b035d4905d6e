// The topics, and the action that creates one.

import { html } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { health } from "../store/health.js";
import { ActionButton } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Page } from "../components/page.js";
import { Table } from "../components/table.js";
import { CREATE } from "./create_topic.js";

const COLUMNS = [
  { title: "Topic", header: true, sort: (topic) => topic.name, cell: (topic) => html`<${Link} to=${`/topics/${encodeURIComponent(topic.name)}`}>${topic.name}<//>` },
  { title: "State", sort: (topic) => -2 * topic.offline - topic.under, cell: (topic) => html`<${TopicState} topic=${topic} />` },
  { title: "Partitions", number: true, sort: (topic) => topic.partitions, cell: (topic) => count(topic.partitions) },
  { title: "Replicas", number: true, sort: (topic) => topic.replicationFactor, cell: (topic) => count(topic.replicationFactor) },
  { title: "Without a leader", number: true, sort: (topic) => topic.offline, cell: (topic) => count(topic.offline) },
  { title: "Under-replicated", number: true, sort: (topic) => topic.under, cell: (topic) => count(topic.under) },
];

export function Topics() {
  const rows = [...health().topics.values()];
  return html`<${Page} title="Topics" about=${html`All partitions by broker: <${Link} to="/partitions">Partitions<//>.`}
      actions=${html`<${ActionButton} action=${CREATE} class="primary">Create topic …<//>`}>
    <${Table} caption="Topics" rows=${rows} rowKey=${(topic) => topic.name} filter=${(topic) => topic.name} noun="topic" columns=${COLUMNS} empty="There are no topics yet." />
  <//>`;
}

export const TopicState = ({ topic }) => (topic.offline ? html`<${Badge} tone="bad">offline partitions<//>` : topic.under ? html`<${Badge} tone="warn">under-replicated<//>` : html`<${Badge} tone="good">in sync<//>`);
