// What follows from the metadata: what is wrong with partitions, and what each broker has.

import { derived } from "./cluster.js";

/** @typedef {{topic: string, row: import("./cluster.js").Row}} TopicPartition */

/**
 * Partitions without a leader, under-replicated ones, and the numbers of each broker.
 * Brokers are those that are live, and those that replicas are assigned to.
 */
export const health = derived(healthOf);

/** The same of any cluster that has the members `brokers` and `topics`, such as a past one. */
export function healthOf(cluster) {
  const found = { partitions: 0, offline: [], under: [], brokers: new Map(), topics: new Map() };
  for (const id of cluster.brokers.keys()) found.brokers.set(id, { id, live: true, leaders: 0, replicas: 0, behind: 0 });
  for (const [topic, { rows }] of cluster.topics) {
    const summary = { name: topic, partitions: rows.size, replicationFactor: 0, offline: 0, under: 0 };
    for (const row of rows.values()) count(found, summary, topic, row);
    found.topics.set(topic, summary);
    found.partitions += rows.size;
  }
  return found;
}

function count(found, summary, topic, row) {
  const [, leader, , isr, replicas] = row;
  if (leader < 0) {
    found.offline.push({ topic, row });
    summary.offline += 1;
  }
  if (isr.length < replicas.length) {
    found.under.push({ topic, row });
    summary.under += 1;
  }
  summary.replicationFactor = Math.max(summary.replicationFactor, replicas.length);
  for (const id of replicas) {
    const broker = brokerOf(found.brokers, id);
    broker.replicas += 1;
    if (id === leader) broker.leaders += 1;
    else if (!isr.includes(id)) broker.behind += 1;
  }
}

function brokerOf(brokers, id) {
  let broker = brokers.get(id);
  if (!broker) {
    broker = { id, live: false, leaders: 0, replicas: 0, behind: 0 };
    brokers.set(id, broker);
  }
  return broker;
}

/** The role of a broker in a partition: "leader", "in sync", "out of sync", "down" or "" (none). */
export function roleOf(row, broker, live) {
  const [, leader, , isr, replicas] = row;
  if (!replicas.includes(broker)) return "";
  if (broker === leader) return "leader";
  if (!live) return "down";
  return isr.includes(broker) ? "in sync" : "out of sync";
}
