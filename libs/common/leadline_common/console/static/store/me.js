// Who the user is, and what the user may do.
//
//   const why = may("delete_topic", { topic });   // "" if allowed, else the reason
//
// The service decides: this only spares the user an action that will be refused.

import { PROMPT_TIMEOUT_MS, get } from "../lib/api.js";
import { signal } from "../lib/dom.js";

/**
 * The answer of `GET /v1/me`, null before it.
 * @type {import("../vendor/signals.js").Signal<{user: string | null, authenticated: boolean,
 *   roles: string[], grants: {role: string, topics: string[], groups: string[]}[],
 *   operations: string[]} | null>}
 */
export const me = signal(null);

export async function loadMe() {
  const { body } = await get("/v1/me", { timeoutMs: PROMPT_TIMEOUT_MS });
  if (JSON.stringify(body) !== JSON.stringify(me.value)) me.value = body;
}

const covers = (patterns, name) =>
  patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));

/**
 * Why the user may not do something, "" if it is allowed.
 * @param {string} operation an operation id of the API, such as "create_topic"
 * @param {{topic?: string, group?: string}} [on] what it is done to
 */
export function may(operation, on = {}) {
  const user = me.value;
  if (!user) return "the user's rights are not known yet";
  if (!user.authenticated) return "";
  const who = user.user ?? "you";
  if (!user.operations.includes(operation)) return `${who} may not do this: it needs another role (${operation})`;
  for (const [kind, name] of Object.entries(on)) {
    if (name && !user.grants.some((grant) => covers(grant[`${kind}s`] ?? [], name))) {
      return `${who} has no role for the ${kind} ${name}`;
    }
  }
  return "";
}
