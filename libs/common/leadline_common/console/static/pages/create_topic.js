// The action that creates a topic, with a preview of where its replicas would be.

import { named } from "../lib/commands.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { send } from "../lib/api.js";
import { count } from "../lib/format.js";
import { cluster } from "../store/cluster.js";
import { Failure } from "../components/notice.js";
import { Placement, assignmentOf, assignmentProblem } from "./topic_actions.js";

const number = (text) => (text.trim() === "" ? undefined : Number(text));
const counted = (values) => !values.assignment.trim();

export const CREATE = {
  operation: "create_topic",
  title: "Create a topic",
  verb: "Create",
  fields: [
    { name: "name", label: "Name", required: true, hint: "Letters, digits, '.', '_' and '-'", check: (name) => (/^[A-Za-z0-9._-]{1,249}$/.test(name) ? "" : "1 to 249 letters, digits, '.', '_' and '-'") },
    { name: "partitions", label: "Partitions", type: "number", least: 1, hint: "By default, as num.partitions says", when: counted },
    { name: "replicas", label: "Replicas of each", type: "number", least: 1, hint: "By default, as default.replication.factor says", when: counted },
    { name: "assignment", label: "Assigned replicas", wide: true, hint: "Instead of numbers: 1:2:3,2:3:1, the preferred leader first", check: assignmentProblem },
    { name: "configs", label: "Settings", type: "textarea", hint: "One a line, such as retention.ms=86400000", check: (text) => (Object.values(settingsOf(text)).includes(undefined) ? "each line is name=value" : "") },
  ],
  request: (values, dryRun) => ({
    method: "POST",
    path: "/v1/topics",
    body: {
      name: values.name,
      ...(counted(values) ? { partitions: number(values.partitions), replication_factor: number(values.replicas) } : { replica_assignment: assignmentOf(values.assignment) }),
      ...(values.configs.trim() ? { configs: settingsOf(values.configs) } : {}),
      ...(dryRun ? { dry_run: true } : {}),
    },
  }),
  cli: (values) => [
    "topics", "create", named(values.name),
    ...(counted(values) && values.partitions ? ["--partitions", values.partitions] : []),
    ...(counted(values) && values.replicas ? ["--replication-factor", values.replicas] : []),
    ...(counted(values) ? [] : ["--assignment", values.assignment.trim()]),
    ...Object.entries(settingsOf(values.configs)).flatMap(([name, value]) => ["--config", `${name}=${value}`]),
  ],
  dryRun: true,
  aside: (values) => html`<${Preview} partitions=${number(values.partitions)} replicas=${number(values.replicas)} shown=${counted(values)} />`,
  confirm: (values) => `Create the topic ${values.name}?`,
  show: (body) => html`<p>${body.name}: ${count(body.partitions)} partitions with ${count(body.replication_factor)} replicas each</p>
    <details><summary>Placement of the replicas</summary><${Placement} of=${body.replica_assignment} /></details>`,
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

const MOST = 2_000;

/** How many replicas and leaders each live broker would get: the controller simulates it. */
function Preview({ partitions, replicas, shown }) {
  const [found, setFound] = useState(null);
  const asked = shown && partitions > 0 && replicas > 0 && partitions <= MOST && Number.isSafeInteger(partitions * replicas);
  useEffect(() => {
    setFound(null);
    if (!asked) return undefined;
    let over = false;
    const timer = setTimeout(async () => {
      const brokers = [...cluster.brokers.values()].map(({ id, rack }) => ({ id, rack }));
      const next = await send({ method: "POST", path: "/v1/what-if/placement", body: { brokers, partitions, replication_factor: replicas } }).catch((error) => ({ error }));
      if (!over) setFound(next);
    }, 300);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [asked, partitions, replicas]);
  if (!asked || !found) return null;
  if (found.error) return html`<${Failure} error=${found.error} />`;
  return html`<details role="group" aria-label="Placement preview"><summary>Placement preview: ${summaryOf(found.body.assignment)}</summary>
    <p class="muted">A simulation: the controller starts at a broker that it draws.</p><${Placement} of=${found.body.assignment} /></details>`;
}

function summaryOf(assignment) {
  const totals = new Map();
  for (const replicas of Object.values(assignment)) for (const id of replicas) totals.set(id, (totals.get(id) ?? 0) + 1);
  return [...totals].sort(([a], [b]) => a - b).map(([id, total]) => `broker ${id} gets ${count(total)}`).join(", ");
}
