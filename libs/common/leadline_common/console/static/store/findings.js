// What is wrong in the cluster and what to do about it, in words: the reasons that the overview
// gives. Computed from what the page has anyway. Where `leadline doctor` has the same finding, `id`
// is the one that it gives, and the name of a section of docs/runbooks.md.

import { plural } from "../lib/format.js";
import { SERVICE } from "../lib/site.js";

const SHOWN = 5;

/** @typedef {{tone: "bad" | "warn", id?: string, what: string, advice: string, to?: string}} Finding */

/**
 * @param {{cluster: object, health: object, failed: object | null, brokers: object[] | null, ready: object | null}} known
 * @returns {Finding[]} the worst first
 */
export function findingsOf({ cluster, health, failed, brokers, ready }) {
  return [
    ...controller(cluster),
    ...partitions(health),
    ...down(failed, health),
    ...directories(brokers ?? []),
    ...releases(brokers ?? []),
    ...reasons(ready),
  ];
}

function controller(cluster) {
  if (!cluster.version || cluster.controller) return [];
  return [{ tone: "bad", id: "no-active-controller", what: "No controller is active", advice: "Start a controller: without one no leaders are elected." }];
}

function partitions({ offline, under }) {
  const found = [];
  if (offline.length) {
    found.push({
      tone: "bad",
      id: "offline-partitions",
      what: `${plural(offline.length, "partition")} without a leader: ${some(offline)}`,
      advice: "Start the brokers of their ISR. As a last resort elect an unclean leader, which may lose records.",
      to: "/partitions?show=offline",
    });
  }
  if (under.length) {
    found.push({
      tone: "warn",
      id: "under-replicated-partitions",
      what: `${plural(under.length, "under-replicated partition")}: ${some(under)}`,
      advice: "Start the missing brokers, or wait for them to catch up.",
      to: "/partitions?show=under",
    });
  }
  return found;
}

const some = (found) => found.slice(0, SHOWN).map(({ topic, row }) => `${topic}-${row[0]}`).join(", ") + (found.length > SHOWN ? ", …" : "");

function down(failed, health) {
  const known = failed?.brokers.filter((one) => one.state !== "returned") ?? [];
  const found = known.map((one) => ({
    tone: one.state === "healed" ? "warn" : "bad",
    id: "broker-failed",
    what: `Broker ${one.id} is down (${one.state})`,
    advice: one.waits_for ? `Healing waits for: ${one.waits_for}.` : "Start it again; if it will not return, forget it once it is healed.",
  }));
  const listed = new Set(known.map((one) => one.id));
  const others = [...health.brokers.values()].filter((one) => !one.live && !listed.has(one.id));
  return [...found, ...others.map((one) => ({ tone: "bad", what: `Broker ${one.id} is not live`, advice: "Start it again: replicas are assigned to it." }))];
}

const directories = (brokers) => brokers.filter((one) => one.misplaced).map((one) => ({
  tone: "bad",
  id: "log-directory-replaced",
  what: `Broker ${one.id} has another log directory, or lost its logs: it cannot lead ${plural(one.misplaced, "partition")} in whose ISR it is`,
  advice: "Start the other brokers of these partitions, or this one with its former log directory.",
}));

function releases(brokers) {
  const found = [...new Set(brokers.map((one) => one.release).filter(Boolean))];
  if (found.length < 2) return [];
  return [{ tone: "warn", id: "two-releases", what: `Brokers have different releases: ${found.join(", ")}`, advice: "Usual during a rolling upgrade; finish it." }];
}

const reported = (ready) => (SERVICE === "controller" ? "controller-reports-problems" : ready ? "broker-reports-problems" : "broker-not-ready");

const reasons = (ready) => (ready?.reasons ?? []).map((reason) => ({ tone: ready.ready ? "warn" : "bad", id: reported(ready.ready), what: `This process reports: ${reason}`, advice: "Do what it says; its log may say more." }));
