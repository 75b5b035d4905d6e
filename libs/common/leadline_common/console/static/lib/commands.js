// The command lines that do the same as an action of the page.

import { at } from "./site.js";

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** A word as a shell reads it back unchanged. */
export const quoted = (word) => (PLAIN.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/**
 * The curl line of a request, as `send` takes it.
 * @param {{method: string, path: string, body?: object}} request
 * @param {boolean} authenticated whether the line has to show a token
 */
export function curlLine({ method, path, body }, authenticated = false) {
  const words = ["curl", "-sS"];
  if (method !== "GET") words.push("-X", method);
  const token = authenticated ? ` -H "Authorization: Bearer $(cat "$LEADLINE_TOKEN_FILE")"` : "";
  words.push(quoted(window.location.origin + at(path)));
  if (body !== undefined) words.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(body)));
  return words.join(" ") + token;
}

/** A name among the words of a command: it is no option, even if it begins with a hyphen. */
export const named = (name) => ({ name: String(name) });

/**
 * The line of the command; the words follow `leadline`, options last.
 * @param {(string | {name: string})[]} words such as ["topics", "delete", named(topic), "--yes"]
 */
export function cliLine(words) {
  const hyphen = words.findIndex((word) => word.name?.startsWith("-"));
  const start = hyphen < 0 ? words.length : hyphen;
  const length = words.slice(start).findIndex((word) => word.startsWith?.("--"));
  const end = length < 0 ? words.length : start + length;
  const options = [...words.slice(end), "--bootstrap", window.location.origin];
  const last = start < end ? ["--", ...words.slice(start, end)] : [];
  return ["leadline", ...words.slice(0, start), ...options, ...last].map((word) => quoted(word.name ?? word)).join(" ");
}
