// The topics, and the action that creates one.

import { html } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { health } from "../store/health.js";
import { ActionButton } from "../components/action_form.js";
import { Badge } from "../components/badge.js";
import { Page } from "../components/page.js";
import { Table } from "../components/table.js";

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

const number = (text) => (text === "" ? undefined : Number(text));

const CREATE = {
  operation: "create_topic",
  title: "Create a topic",
  verb: "Create",
  fields: [
    { name: "name", label: "Name", required: true, hint: "Letters, digits, '.', '_' and '-'", check: (name) => (/^[A-Za-z0-9._-]{1,249}$/.test(name) ? "" : "1 to 249 letters, digits, '.', '_' and '-'") },
    { name: "partitions", label: "Partitions", type: "number", least: 1, hint: "By default, as num.partitions says" },
    { name: "replicas", label: "Replicas of each", type: "number", least: 1, hint: "By default, as default.replication.factor says" },
    { name: "configs", label: "Settings", type: "textarea", hint: "One a line, such as retention.ms=86400000", check: (text) => (Object.values(settingsOf(text)).includes(undefined) ? "each line is name=value" : "") },
  ],
  request: (values, dryRun) => ({
    method: "POST",
    path: "/v1/topics",
    body: {
      name: values.name,
      partitions: number(values.partitions),
      replication_factor: number(values.replicas),
      ...(values.configs.trim() ? { configs: settingsOf(values.configs) } : {}),
      ...(dryRun ? { dry_run: true } : {}),
    },
  }),
  cli: (values, dryRun) => [
    "topics", "create", values.name,
    ...(values.partitions ? ["--partitions", values.partitions] : []),
    ...(values.replicas ? ["--replication-factor", values.replicas] : []),
    ...Object.entries(settingsOf(values.configs)).flatMap(([name, value]) => ["--config", `${name}=${value}`]),
    ...(dryRun ? ["--dry-run"] : []),
  ],
  dryRun: true,
  confirm: (values) => `Create the topic ${values.name}?`,
  show: (body) => html`<p>${body.name}: ${count(body.partitions)} partitions with ${count(body.replication_factor)} replicas each</p>
    <details><summary>Placement of the replicas</summary><pre>${Object.entries(body.replica_assignment).map(([partition, replicas]) => `${partition}: ${replicas.join(", ")}`).join("\n")}</pre></details>`,
  next: (body) => ({ to: `/topics/${encodeURIComponent(body.name)}`, text: `Show ${body.name}` }),
};

/** Lines of name=value as an object; undefined stands for a line that is none. */
function settingsOf(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    return at < 1 ? [line, undefined] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}
