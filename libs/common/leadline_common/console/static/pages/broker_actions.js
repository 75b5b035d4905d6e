// What can be done to a broker.

import { html } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";
import { refresh } from "../store/polled.js";

export const drain = (id) => ({
  operation: "drain",
  title: `Drain broker ${id}`,
  verb: "Drain",
  danger: true,
  about: "All leaders move off the broker, then all replicas, as a task. Cancelling the task reverts what is not finished.",
  fields: [
    { name: "leaders", label: "Leaders only: replicas stay, and leaders stay off until the task is cancelled", type: "checkbox", wide: true },
    { name: "throttle", label: "Throttle in bytes per second", type: "number", least: 1, hint: "What each broker may send and receive; by default no limit of its own", when: (values) => !values.leaders },
  ],
  request: (values, dryRun) => ({
    method: "POST",
    path: `/v1/brokers/${id}/drain`,
    body: { ...(values.leaders ? { leaders_only: true } : values.throttle ? { throttle_bytes_per_s: Number(values.throttle) } : {}), ...(dryRun ? { dry_run: true } : {}) },
  }),
  cli: (values) => ["brokers", "drain", String(id), ...(values.leaders ? ["--leaders-only"] : values.throttle ? ["--throttle", values.throttle] : [])],
  dryRun: true,
  confirm: () => `Move everything off broker ${id}?`,
  show: (body) => html`<p>${body.details?.leaders === undefined ? "" : `${plural(body.details.leaders, "leader")}; of these, ${count(body.details.leaders_that_stay)} move only with their replicas. `}${plural(body.partitions.total, "partition")} in the task.</p>`,
  next: (body) => ({ to: `/tasks/${body.id}`, text: "Follow the task" }),
  done: () => refresh("/v1/tasks"),
});

export const forget = (id) => ({
  operation: "forget_broker",
  title: `Forget broker ${id}`,
  verb: "Forget",
  danger: true,
  about: "It is no longer listed as down. Refused while it is live, or while replicas are assigned to it.",
  request: () => ({ method: "DELETE", path: `/v1/failed-brokers/${id}` }),
  cli: () => ["brokers", "forget", String(id)],
  confirm: () => `Forget broker ${id}? It will not return?`,
  show: (body) => html`<p>Broker ${body.id} is forgotten.</p>`,
  next: () => ({ to: "/brokers", text: "All brokers" }),
  done: () => refresh("/v1/failed-brokers"),
});
