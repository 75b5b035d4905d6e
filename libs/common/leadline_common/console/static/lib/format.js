// Numbers, sizes, rates and times as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const whole = new Intl.NumberFormat("en");
const dateTime = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** 12345 -> "12,345"; "–" for null. */
export const count = (number) => (number == null ? "–" : whole.format(number));

/** "1 topic", "2 topics", "3 entries". */
export const plural = (number, one, many = one.endsWith("y") ? `${one.slice(0, -1)}ies` : `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Bytes as "1.5 MiB". */
export function bytes(number) {
  if (number == null || Number.isNaN(number)) return "–";
  let unit = 0;
  let value = Math.abs(number);
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const shown = unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1);
  return `${number < 0 ? "−" : ""}${shown} ${UNITS[unit]}`;
}

/** Bytes per second as "1.5 MiB/s". */
export const rate = (number) => (number == null ? "–" : `${bytes(number)}/s`);

/** Milliseconds as "1 h 2 min", "34 s", "250 ms". */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** The last time (Unix ms) of which a browser knows the date; a record may have a later one. */
const LAST_MS = 8.64e15;

/** A time in Unix ms as "2026-01-31 12:34:56", in the time zone of the browser. */
export function time(ms) {
  if (ms == null) return "–";
  return Math.abs(ms) <= LAST_MS ? dateTime.format(ms) : String(ms);
}
