// The state of the cluster that the page shows, kept up to date (store/live.js) and read by
// components. The data is plain: read `drawn.value` first, so that the component is drawn again
// when the data has changed, at most once per frame.
//
//   drawn.value;
//   for (const [name, topic] of cluster.topics) …

import { batch, signal } from "../lib/dom.js";
import { measured } from "../lib/measure.js";

/**
 * A row of the metadata: [partition, leader (-1: none), leader epoch, ISR, replicas].
 * @typedef {[number, number, number, number[], number[]]} Row
 * @typedef {{topicId: string, rows: Map<number, Row>}} Topic another object after each change
 * @typedef {{id: number, url: string, rack: string | null, incarnation: number}} Broker
 */
export const cluster = {
  /** 0 before the first metadata. */
  version: 0,
  clusterId: "",
  /** @type {{id: number, url: string, epoch: number} | null} */
  controller: null,
  /** @type {Map<number, Broker>} the live brokers */
  brokers: new Map(),
  /** @type {Map<string, Topic>} by name */
  topics: new Map(),
};

/** Counts the updates that were drawn. */
export const drawn = signal(0);

/** Counts changes of the data: what is computed from it is kept under this number. */
let changes = 0;
let frame = 0;
let spentMs = 0;

/** Change the data by `work`, and have the components drawn in the next frame. */
export function update(work) {
  const start = performance.now();
  work(cluster);
  changes += 1;
  spentMs += performance.now() - start;
  if (!frame) frame = nextFrame(draw);
}

// A page in the background has no frames, but its title and its announcements go on.
const nextFrame = (work) => (document.hidden ? setTimeout(work, 500) : requestAnimationFrame(work));

function draw() {
  const before = spentMs;
  frame = 0;
  spentMs = 0;
  measured(() => batch(() => { drawn.value += 1; }), before);
}

/**
 * Return a function that computes something from the cluster once for each change of it.
 * @template T
 * @param {(data: typeof cluster) => T} compute
 * @returns {() => T}
 */
export function derived(compute) {
  let at = -1;
  let kept;
  return () => {
    drawn.value;
    if (at !== changes) {
      kept = compute(cluster);
      at = changes;
    }
    return kept;
  };
}

/** Replace everything by a metadata document. */
export function load(data, document) {
  data.version = document.version;
  data.clusterId = document.cluster_id;
  data.controller = document.controller;
  data.brokers = new Map(document.brokers.map((broker) => [broker.id, broker]));
  data.topics = new Map(
    Object.entries(document.topics).map(([name, topic]) => [name, topicOf(topic.topic_id, topic.partitions)]),
  );
}

/**
 * Apply the metadata's changes to a state that the page has; return false, and change nothing, if
 * they are to topics that it does not have.
 */
export function merge(data, changes) {
  const rowsOf = Object.entries(changes.changed_rows);
  if (rowsOf.some(([name, topic]) => data.topics.get(name)?.topicId !== topic.topic_id)) return false;
  data.version = changes.version;
  data.controller = changes.controller;
  data.brokers = new Map(changes.brokers.map((broker) => [broker.id, broker]));
  for (const name of changes.deleted_topics) data.topics.delete(name);
  for (const [name, topic] of Object.entries(changes.topics)) {
    data.topics.set(name, topicOf(topic.topic_id, topic.partitions));
  }
  for (const [name, topic] of rowsOf) {
    const { topicId, rows } = data.topics.get(name);
    for (const row of topic.partitions) rows.set(row[0], row);
    data.topics.set(name, { topicId, rows });
  }
  return true;
}

/** Apply one event of `GET /v1/events`. */
export function apply(data, event) {
  if (event.type === "brokers") {
    data.brokers = new Map(event.brokers.map((broker) => [broker.id, broker]));
  } else if (event.type === "topics") {
    const left = new Set(event.topics);
    data.topics = new Map([...data.topics].filter(([name]) => left.has(name)));
  } else if (event.type === "topic_deleted") {
    data.topics.delete(event.topic);
  } else if (event.type === "topic" || !data.topics.has(event.topic)) {
    data.topics.set(event.topic, topicOf(event.topic_id, event.partitions));
  } else {
    const { topicId, rows } = data.topics.get(event.topic);
    for (const row of event.partitions) rows.set(row[0], row);
    for (const partition of event.removed) rows.delete(partition);
    data.topics.set(event.topic, { topicId, rows });
  }
}

const topicOf = (topicId, rows) => ({ topicId, rows: new Map(rows.map((row) => [row[0], row])) });
