// How far the followers of a topic are behind their leaders, for a range of its partitions: read
// from every live broker, again and again while a component shows it. Only brokers know.

import { get } from "../lib/api.js";
import { useEffect, useState } from "../lib/dom.js";
import { SERVICE } from "../lib/site.js";
import { cluster } from "./cluster.js";
import { may } from "./me.js";

const EVERY_MS = 3_000;

/**
 * @param {string | undefined} topic none: nothing is read
 * @param {{first: number, last: number}} view the partitions, both ends included
 * @returns {Map<string, number> | null} records behind the leader, by "partition/broker"
 */
export function useLag(topic, view) {
  const [lag, setLag] = useState(null);
  useEffect(() => {
    if (!topic || SERVICE !== "broker" || may("list_broker_replicas")) return undefined;
    let timer = 0;
    let over = false;
    const read = async () => {
      if (!document.hidden) {
        const found = await lagOf(topic, view);
        if (!over) setLag((before) => (same(before, found) ? before : found));
      }
      if (!over) timer = setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [topic, view.first, view.last]);
  return lag;
}

async function lagOf(topic, { first, last }) {
  const query = `topic=${encodeURIComponent(topic)}&first=${first}&last=${last}`;
  const ids = [...cluster.brokers.keys()];
  const answers = await Promise.allSettled(ids.map((id) => get(`/v1/brokers/${id}/replicas?${query}`)));
  const ends = new Map();
  const replicas = answers.flatMap((answer, i) => (answer.status === "fulfilled" ? answer.value.body.replicas.map((row) => ({ ...row, broker: ids[i] })) : []));
  for (const row of replicas) if (row.role === "leader") ends.set(row.partition, row.log_end_offset);
  const found = new Map();
  for (const row of replicas) {
    const end = ends.get(row.partition);
    if (end !== undefined && row.role !== "leader") found.set(`${row.partition}/${row.broker}`, Math.max(0, end - row.log_end_offset));
  }
  return found;
}

const same = (a, b) => a !== null && a.size === b.size && [...b].every(([key, value]) => a.get(key) === value);
