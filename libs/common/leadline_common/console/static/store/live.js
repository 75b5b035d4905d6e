// Keeps store/cluster.js current: the whole metadata once, then what changes.
//
// Whoever may follow the cluster's events gets them as a stream; for others, and while the stream
// cannot be had (no controller is active), the metadata is read by long polls. `connection` says
// how it is going; after a failure the page tries again, at growing intervals. A page in the
// background only reads from time to time: a browser has six connections with a server for all its
// tabs, and each stream keeps one.

import { PROMPT_TIMEOUT_MS, get, nameCluster } from "../lib/api.js";
import { signal } from "../lib/dom.js";
import { at } from "../lib/site.js";
import { apply, cluster, load, merge, update } from "./cluster.js";
import { loadMe, may } from "./me.js";

const TYPES = ["brokers", "topics", "topic", "topic_changed", "topic_deleted"];
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 5_000;
const CONTROLLER_MS = 3_000;
const POLL_S = 30;
const BACKGROUND_MS = 10_000;

/**
 * state: "connecting" | "live" (by events) | "polling" (by long polls) | "disconnected";
 * since: when it came into this state (Unix ms); problem: why it is disconnected.
 */
export const connection = signal({ state: "connecting", since: Date.now(), problem: "" });

/** When the data was last known to be current (Unix ms), 0 before the first. */
export const currentAt = signal(0);

const state = (next, problem = "") => {
  const now = connection.value;
  const since = now.state === next ? now.since : Date.now();
  if (now.state !== next || now.problem !== problem) connection.value = { state: next, since, problem };
  if (next === "live" || next === "polling") currentAt.value = Date.now();
};

/** Ends the stream or the poll of the moment. */
let following = new AbortController();

/** Why it ends when the user goes to another tab. */
const LEFT = new Error("the page is in the background");
document.addEventListener("visibilitychange", () => { if (document.hidden) following.abort(LEFT); });

/** Follow the cluster until the page is left. */
export async function follow() {
  let wait = FIRST_RETRY_MS;
  void followController();
  for (;;) {
    following = new AbortController();
    try {
      await loadMe();
      await readAll();
      wait = FIRST_RETRY_MS;
      if (document.hidden) {
        await inView(BACKGROUND_MS);
      } else if (!may("read_events")) {
        await stream();
        // The stream has ended, with the controller or with the process: read what was missed.
        await longPoll(1);
      } else {
        await longPoll(POLL_S);
      }
    } catch (problem) {
      if (problem === LEFT) continue;
      state("disconnected", problem.message);
      await pause(wait);
      wait = Math.min(2 * wait, LAST_RETRY_MS);
    }
  }
}

/** Read what the page lacks: everything, or what has changed since the state that it has. */
async function readAll() {
  const answer = await get(changesPath(), { timeoutMs: PROMPT_TIMEOUT_MS });
  const { body } = answer;
  nameCluster(body.cluster_id);
  if (body.version < cluster.version && body.cluster_id === cluster.clusterId) return;
  if (!take(answer)) await readAll();
  else state("polling");
}

async function longPoll(seconds) {
  const options = { signal: following.signal, timeoutMs: 1_000 * seconds + PROMPT_TIMEOUT_MS };
  const answer = await get(`${changesPath()}&after=${cluster.version}&wait=${seconds}s`, options);
  state("polling");
  if (answer.body.version > cluster.version) take(answer);
}

/**
 * The ETag of a metadata document, all of which the page has: the base of the next changes. What
 * events have brought since is in these changes, too. "": the page needs everything.
 */
let base = "";
const changesPath = () => `/v1/metadata?changed_after=${encodeURIComponent(base)}`;

/** The same state as the events name it: `controller epoch-version`; "0" stands for none. */
const position = () => /\d+-\d+/.exec(base)?.[0] ?? "0";

/** Apply an answer; return false if the page needs everything, which is then asked for next. */
function take({ body, etag }) {
  let taken = true;
  update((data) => {
    if (body.changed_after === undefined) load(data, body);
    else taken = body.cluster_id === data.clusterId && merge(data, body);
  });
  base = taken ? etag : "";
  return taken;
}

/** Apply events until the stream breaks or is refused; fail if the process does not answer. */
function stream() {
  following.signal.throwIfAborted();
  return new Promise((ended, failed) => {
    const source = new EventSource(at(`/v1/events?after=${position()}`));
    following.signal.addEventListener("abort", () => {
      source.close();
      failed(following.signal.reason);
    });
    source.onopen = () => state("live");
    // It would connect again by itself, but without telling what it missed in between.
    source.onerror = () => {
      source.close();
      ended();
    };
    for (const type of TYPES) {
      source.addEventListener(type, (message) => {
        const event = JSON.parse(message.data);
        update((data) => {
          apply(data, event);
          // The id has the epoch of the controller and the version.
          const version = Number(message.lastEventId.split("-").at(-1));
          if (version > data.version) data.version = version;
        });
        state("live");
      });
    }
  });
}

/**
 * Events do not say which controller is active: read it from time to time. That also tells whether
 * the process still answers: the stream of one that is frozen does not end.
 */
async function followController() {
  for (;;) {
    await pause(CONTROLLER_MS);
    try {
      const { body } = await get("/v1/controller", { timeoutMs: PROMPT_TIMEOUT_MS });
      const known = cluster.controller;
      const found = body.controller;
      if (found && (found.epoch !== known?.epoch || found.id !== known?.id)) update((data) => { data.controller = found; });
      if (connection.value.state === "live") currentAt.value = Date.now();
    } catch (problem) {
      if (!problem.status) following.abort(problem);
    }
  }
}

/** Wait until the page is in view, at most so long. */
const inView = (ms) => new Promise((done) => {
  const end = () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", end);
    done();
  };
  const timer = setTimeout(end, ms);
  document.addEventListener("visibilitychange", end);
});

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
