// Times as people write them.

/**
 * A time as the command takes it, too: ISO 8601 (UTC unless it names a zone), or Unix ms; else NaN.
 * A time before 1970 is 0, as nothing in a cluster is older.
 */
export function unixMs(text) {
  const wanted = text.trim();
  if (/^\d{9,16}$/.test(wanted)) return Number(wanted);
  if (!/^\d{4}-\d{2}-\d{2}/.test(wanted)) return NaN;
  const zoned = /T.*(Z|[+-]\d{2}:?\d{2})$/.test(wanted.replace(" ", "T"));
  const at = Date.parse(wanted.replace(" ", "T") + (zoned ? "" : wanted.length > 10 ? "Z" : "T00:00:00Z"));
  return Math.max(0, at);
}
