// Why a partition has its leader: every leader and ISR that it had, with the reason and the cause.

import { get } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { Link, location, setQuery } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { Badge } from "../components/badge.js";
import { CopyLine } from "../components/copy_line.js";
import { Field, problemOf } from "../components/field.js";
import { Failure, Notice } from "../components/notice.js";
import { Card } from "../components/page.js";
import { Table } from "../components/table.js";
import { cliLine, named } from "../lib/commands.js";

const FIELDS = [
  { name: "topic", label: "Topic", required: true, hint: "Also one that was deleted" },
  { name: "partition", label: "Partition", type: "number", least: 0, required: true },
];

export function Explain() {
  const { query } = location.value;
  const [topic, partition] = [query.get("topic") ?? "", query.get("partition") ?? ""];
  const [values, setValues] = useState({ topic, partition: partition || "0" });
  useEffect(() => setValues({ topic, partition: partition || "0" }), [topic, partition]);
  const wrong = FIELDS.some((field) => problemOf(field, values));
  const ask = (event) => {
    event.preventDefault();
    if (!wrong) setQuery({ topic: values.topic, partition: values.partition });
  };
  return html`<${Card} title="Partition"><form class="search" onSubmit=${ask} novalidate aria-label="Choose a partition">
      ${FIELDS.map((field) => html`<${Field} key=${field.name} field=${field} values=${values} onChange=${(name, value) => setValues({ ...values, [name]: value })} />`)}
      <div class="buttons"><button type="submit" class="primary" aria-disabled=${wrong ? "true" : undefined}>Explain</button></div></form><//>
    ${topic && /^\d+$/.test(partition) && html`<${Changes} key=${`${topic}-${partition}`} topic=${topic} partition=${Number(partition)} />`}`;
}

/** All changes, read again whenever the partition's leader, epoch or ISR changes. */
function useChanges(topic, partition) {
  drawn.value;
  const now = JSON.stringify(cluster.topics.get(topic)?.rows.get(partition) ?? null);
  const [found, setFound] = useState({ changes: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    const read = async () => {
      const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/history`;
      const changes = [];
      try {
        for (let cursor = ""; cursor !== null;) {
          const { body } = await get(`${path}?page_size=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, { signal: stop.signal });
          changes.push(...body.changes);
          cursor = body.next_cursor;
        }
        setFound({ changes: changes.reverse(), error: null });
      } catch (error) {
        if (error.name !== "AbortError") setFound((before) => ({ ...before, error }));
      }
    };
    void read();
    return () => stop.abort();
  }, [topic, partition, now]);
  return found;
}

function Changes({ topic, partition }) {
  const { changes, error } = useChanges(topic, partition);
  const row = cluster.topics.get(topic)?.rows.get(partition);
  const latest = changes?.find((one) => one.before?.leader !== one.after.leader);
  return html`${error && html`<${Failure} error=${error} />`}
    ${latest && html`<${Notice} tone=${latest.after.leader < 0 || latest.reason === "unclean" ? "bad" : undefined} title=${row ? `${topic}-${partition}: ${row[1] < 0 ? "no leader" : `broker ${row[1]} leads`}` : `${topic}-${partition} is gone`}>
      <p>Since ${time(latest.time)}: ${sentence(latest)}</p><//>`}
    <${Card} title=${`Leaders and ISRs of ${topic}-${partition}`}>
      ${changes ? html`<${Table} caption=${`Changes of ${topic}-${partition}, the newest first`} rows=${changes} rowKey=${(one) => `${one.audit_id}-${one.state_version}`} filter=${(one) => `${one.reason} ${one.why} ${one.actor} ${one.kind}`}
        noun="change" columns=${COLUMNS} empty="This partition has no history: it never existed, or the audit no longer has it." />` : !error && html`<p class="muted">Loading …</p>`}
      <${CopyLine} name="command line" text=${cliLine(["explain", named(topic), String(partition)])} />
    <//>`;
}

const REASONS = {
  new: "the partition was created",
  isr: "it was the first live member of the ISR",
  preferred: "it is the preferred leader, the first of the replicas",
  reassigned: "the replicas were reassigned",
  unclean: "it was elected although it was not in sync: records may be lost",
  none: "no member of the ISR is live",
  directory_replaced: "the live members of the ISR have other log directories than those that were in sync",
  unchanged: "the leader stays",
};

/** Why the leader of a change leads, in a sentence. */
function sentence({ before, after, reason, why, actor }) {
  const who = after.leader < 0 ? "nobody leads" : before && before.leader >= 0 ? `broker ${after.leader} leads instead of ${before.leader}` : `broker ${after.leader} leads`;
  return `${who}, because ${REASONS[reason] ?? reason}${why && why !== reason ? ` (${why})` : ""}; by ${actor}.`;
}

const turn = (before, after) => (before == null || before === after ? String(after) : `${before} → ${after}`);
const leader = (number) => (number < 0 ? "none" : number);

function isrChange({ before, after }) {
  const lost = (before?.isr ?? []).filter((id) => !after.isr.includes(id));
  const gained = before ? after.isr.filter((id) => !before.isr.includes(id)) : [];
  return [after.isr.join(", ") || "empty", lost.length && `lost ${lost.join(", ")}`, gained.length && `gained ${gained.join(", ")}`].filter(Boolean).join("; ");
}

const COLUMNS = [
  { title: "Time", header: true, cell: (one) => html`<${Link} to=${`/history/past?at=${one.time}`}>${time(one.time)}<//>` },
  { title: "Leader", cell: (one) => (one.before && one.before.leader === one.after.leader ? leader(one.after.leader) : html`<strong>${turn(one.before && leader(one.before.leader), leader(one.after.leader))}</strong>`) },
  { title: "Reason", cell: (one) => (one.reason === "unclean" || one.reason === "none" ? html`<${Badge} tone="bad">${one.reason}<//>` : one.reason) },
  { title: "Epoch", number: true, cell: (one) => count(one.after.leader_epoch) },
  { title: "ISR", cell: isrChange },
  { title: "Why", cell: (one) => one.why || "–" },
  { title: "By", cell: (one) => one.actor },
  { title: "Entry", cell: (one) => html`<${Link} to=${`/history/${one.audit_id}`}>${one.audit_id}<//>` },
  { title: "Cause", cell: (one) => html`<${Link} to=${`/history?cause=${encodeURIComponent(one.cause)}`}>${one.cause}<//>` },
];
