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

/**
 * The line of the command; the words follow `leadline`.
 * @param {string[]} words such as ["topics", "delete", name]
 */
export const cliLine = (words) => ["leadline", ...words, "--bootstrap", window.location.origin].map(quoted).join(" ");
