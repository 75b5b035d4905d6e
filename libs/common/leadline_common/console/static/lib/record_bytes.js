// Keys and values of records as bytes: read from base64, and shown as text, as JSON or as hex.

const strict = new TextDecoder("utf-8", { fatal: true });
const lenient = new TextDecoder("utf-8");

/** The bytes of base64; null stays null. @param {string | null} text */
export function bytesOf(text) {
  if (text == null) return null;
  const binary = atob(text);
  const found = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) found[i] = binary.charCodeAt(i);
  return found;
}

/** The base64 of a text in UTF-8. @param {string} text */
export function base64Of(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

// Control characters other than tab and line ends: no text that a person wrote.
// eslint-disable-next-line no-control-regex
const BINARY = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

/** The text that bytes are in UTF-8, null if they are no text. @param {Uint8Array} bytes */
export function textOf(bytes) {
  try {
    const text = strict.decode(bytes);
    return BINARY.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** The JSON that bytes are, with line breaks; null if they are none. @param {Uint8Array} bytes */
export function jsonOf(bytes) {
  const text = textOf(bytes);
  if (text === null) return null;
  try {
    return indented(text, JSON.parse(text));
  } catch {
    return null;
  }
}

/** Numbers that JavaScript would round are shown as they were written: then the text itself. */
function indented(text, parsed) {
  const dense = (found) => found.replace(/\s/g, "");
  const shown = JSON.stringify(parsed, null, 2);
  return dense(shown) === dense(text) ? shown : text;
}

/** Bytes as rows of 16: offset, hex, characters. @param {Uint8Array} bytes */
export function hexOf(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return rows.join("\n");
}

/** Text whatever the bytes are: what is no UTF-8 is shown as a replacement character. */
export const anyText = (bytes) => lenient.decode(bytes);

/** A line about bytes for a table, at most `most` characters. @param {Uint8Array | null} bytes */
export function preview(bytes, most = 120) {
  if (bytes === null) return null;
  const start = bytes.subarray(0, 4 * most);
  // The cut may be within a character: only the whole value tells whether it is text.
  const text = bytes.length > start.length ? (textOf(bytes) === null ? null : anyText(start)) : textOf(bytes);
  if (text === null) {
    const shown = [...bytes.subarray(0, most / 3)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return `${shown}${bytes.length > most / 3 ? " …" : ""}`;
  }
  const line = text.replace(/\s+/g, " ");
  return line.length > most || bytes.length > start.length ? `${line.slice(0, most)} …` : line;
}
