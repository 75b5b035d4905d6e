// What no event announces, read again and again while a component shows it.
//
//   const tasks = usePolled("/v1/tasks", 2_000);
//   if (!tasks.data) return html`<${Waiting} of=${tasks} />`;
//
// Components that show the same path share its requests. After a failure the last data stays, with
// `error` set; a page in the background asks less often.

import { get } from "../lib/api.js";
import { signal, useEffect } from "../lib/dom.js";

/**
 * data: the body of the last answer, null before it; at: when it came (Unix ms); error: the
 * ApiError of the last attempt, null after a success.
 * @typedef {{data: any, at: number, error: import("../lib/api.js").ApiError | null}} Polled
 */

/** @type {Map<string, {value: import("../vendor/signals.js").Signal<Polled>, users: Map<object, number>, timer: number, again: () => void}>} */
const known = new Map();
const NOTHING = { data: null, at: 0, error: null };
const KEPT = 64;

function entryOf(path) {
  let entry = known.get(path);
  if (!entry) {
    entry = { value: signal(NOTHING), users: new Map(), timer: 0, running: false, again: () => {} };
    known.set(path, entry);
    forgetUnused();
  }
  return entry;
}

function forgetUnused() {
  for (const [path, entry] of known) {
    if (known.size <= KEPT) return;
    if (!entry.users.size && Date.now() - entry.value.value.at > 60_000) known.delete(path);
  }
}

async function read(path, entry) {
  clearTimeout(entry.timer);
  if (entry.running) return;
  entry.running = true;
  try {
    const { body } = await get(path);
    entry.value.value = { data: body, at: Date.now(), error: null };
  } catch (error) {
    entry.value.value = { ...entry.value.value, error };
  }
  entry.running = false;
  if (!entry.users.size) return;
  const every = Math.min(...entry.users.values());
  clearTimeout(entry.timer);
  entry.timer = setTimeout(() => read(path, entry), document.hidden ? 10 * every : every);
}

/**
 * Follow a path while the component is shown.
 * @param {string | null} path null: nothing is read
 * @param {number} everyMs
 * @returns {Polled}
 */
export function usePolled(path, everyMs = 5_000) {
  useEffect(() => {
    if (!path) return undefined;
    const user = {};
    const entry = entryOf(path);
    entry.users.set(user, everyMs);
    void read(path, entry);
    return () => {
      entry.users.delete(user);
      if (!entry.users.size) clearTimeout(entry.timer);
    };
  }, [path, everyMs]);
  return path ? entryOf(path).value.value : NOTHING;
}

/** Read a path at once where it is shown, for instance after an action that changed it. */
export function refresh(path) {
  const entry = known.get(path);
  if (entry) void read(path, entry);
}
