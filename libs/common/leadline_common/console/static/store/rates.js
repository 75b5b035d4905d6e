// The rates of all brokers, sampled while the page is open: only brokers measure them.

import { get } from "../lib/api.js";
import { signal } from "../lib/dom.js";
import { SERVICE } from "../lib/site.js";
import { cluster } from "./cluster.js";
import { may } from "./me.js";

const EVERY_MS = 5_000;
const KEPT = 360;

/**
 * brokers: the last answer of each live broker (`GET /v1/brokers/{id}/load`), by id;
 * times, produced, fetched: the sums over brokers (bytes per second), oldest first;
 * missing: brokers that did not answer; why: why there are no rates at all, "" if there are.
 */
export const rates = signal({ brokers: new Map(), times: [], produced: [], fetched: [], missing: [], why: "" });

const perSecond = (load, name) => (load[name] * 1000) / Math.max(1, load.window_end_ms - load.window_start_ms);

/** The rates of one broker in bytes per second, null while it has not answered. */
export function ratesOf(id) {
  const load = rates.value.brokers.get(id);
  if (!load) return null;
  return { produced: perSecond(load, "produced_bytes"), fetched: perSecond(load, "fetched_bytes"), load };
}

/** Sample until the page is left. */
export async function sampleRates() {
  for (;;) {
    if (!document.hidden && cluster.version) await sample();
    await new Promise((done) => setTimeout(done, cluster.version ? EVERY_MS : 200));
  }
}

async function sample() {
  if (SERVICE !== "broker") {
    rates.value = { ...rates.value, why: "only brokers measure rates: open a broker's console" };
    return;
  }
  const why = may("read_broker_load");
  if (why) {
    rates.value = { ...rates.value, why };
    return;
  }
  const ids = [...cluster.brokers.keys()];
  const answers = await Promise.allSettled(ids.map((id) => get(`/v1/brokers/${id}/load`)));
  const brokers = new Map();
  const missing = [];
  answers.forEach((answer, i) => {
    if (answer.status === "fulfilled") brokers.set(ids[i], answer.value.body);
    else missing.push(ids[i]);
  });
  if (!brokers.size) {
    rates.value = { ...rates.value, missing };
    return;
  }
  const sum = (name) => [...brokers.values()].reduce((all, load) => all + perSecond(load, name), 0);
  const { times, produced, fetched } = rates.value;
  rates.value = {
    brokers,
    missing,
    why: "",
    times: [...times, Date.now() / 1000].slice(-KEPT),
    produced: [...produced, sum("produced_bytes")].slice(-KEPT),
    fetched: [...fetched, sum("fetched_bytes")].slice(-KEPT),
  };
}
