// The replicas of a topic, as each live broker describes its own: ends of the log, size, role.
// Read again and again while a component shows them. Only brokers know.

import { get } from "../lib/api.js";
import { useEffect, useState } from "../lib/dom.js";
import { SERVICE } from "../lib/site.js";
import { cluster } from "./cluster.js";
import { may } from "./me.js";

const EVERY_MS = 3_000;

/**
 * rows: by partition, then by broker (the rows of `GET /v1/brokers/{id}/replicas`); missing:
 * brokers that did not answer; why: why nothing can be read, "" if it can.
 * @typedef {{rows: Map<number, Map<number, object>>, missing: number[], why: string, at: number}} Replicas
 */

/**
 * @param {string} topic
 * @param {number} first the first partition
 * @param {number} last the last partition, included
 * @returns {Replicas}
 */
export function useReplicas(topic, first, last) {
  const [found, setFound] = useState({ rows: new Map(), missing: [], why: "", at: 0 });
  const why = SERVICE !== "broker" ? "only brokers know: open a broker's console" : may("list_broker_replicas");
  useEffect(() => {
    if (why) return undefined;
    let timer = 0;
    let over = false;
    const read = async () => {
      if (!document.hidden) {
        const next = await replicasOf(topic, first, last);
        if (!over) setFound(next);
      }
      if (!over) timer = setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [topic, first, last, why]);
  return why ? { ...found, why } : found;
}

async function replicasOf(topic, first, last) {
  const query = `topic=${encodeURIComponent(topic)}&first=${first}&last=${last}`;
  const ids = [...cluster.brokers.keys()];
  const answers = await Promise.allSettled(ids.map((id) => get(`/v1/brokers/${id}/replicas?${query}`)));
  const rows = new Map();
  const missing = [];
  answers.forEach((answer, i) => {
    if (answer.status !== "fulfilled") {
      missing.push(ids[i]);
      return;
    }
    for (const row of answer.value.body.replicas) {
      if (!rows.has(row.partition)) rows.set(row.partition, new Map());
      rows.get(row.partition).set(ids[i], row);
    }
  });
  return { rows, missing, why: "", at: Date.now() };
}

/** How many records a replica is behind the leader, null if it is not known. */
export function lagOf(row, replicas, broker) {
  const leader = replicas?.get(row[1]);
  const own = replicas?.get(broker);
  return leader && own ? Math.max(0, leader.log_end_offset - own.log_end_offset) : null;
}
