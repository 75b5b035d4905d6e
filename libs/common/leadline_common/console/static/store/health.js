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
  for (const [name, topic] of cluster.topics) {
    const one = topicHealth(name, topic);
    found.topics.set(name, one.summary);
    found.partitions += one.summary.partitions;
    for (const each of one.offline) found.offline.push(each);
    for (const each of one.under) found.under.push(each);
    for (const [id, numbers] of one.brokers) add(brokerOf(found.brokers, id), numbers);
  }
  return found;
}

/** A changed topic is another object (store/cluster.js), so that only changed ones are counted again. */
const kept = new WeakMap();

function topicHealth(name, topic) {
  let found = kept.get(topic);
  if (!found) {
    found = countTopic(name, topic.rows);
    kept.set(topic, found);
  }
  return found;
}

function countTopic(name, rows) {
  const summary = { name, partitions: rows.size, replicationFactor: 0, offline: 0, under: 0 };
  const found = { summary, offline: [], under: [], brokers: new Map() };
  for (const row of rows.values()) countPartition(found, name, row);
  summary.offline = found.offline.length;
  summary.under = found.under.length;
  return found;
}

function countPartition(found, topic, row) {
  const [, leader, , isr, replicas] = row;
  if (leader < 0) found.offline.push({ topic, row });
  if (isr.length < replicas.length) found.under.push({ topic, row });
  found.summary.replicationFactor = Math.max(found.summary.replicationFactor, replicas.length);
  for (const id of replicas) {
    const broker = brokerOf(found.brokers, id);
    broker.replicas += 1;
    if (id === leader) broker.leaders += 1;
    else if (!isr.includes(id)) broker.behind += 1;
  }
}

function add(broker, { leaders, replicas, behind }) {
  broker.leaders += leaders;
  broker.replicas += replicas;
  broker.behind += behind;
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
