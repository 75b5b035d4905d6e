// What the page knows of the process that serves it, and the addresses of its paths.

const meta = (name) => document.querySelector(`meta[name="leadline-${name}"]`)?.content ?? "";

/** The path below which a proxy serves this process, "" if none. */
export const ROOT = meta("root");
/** "broker" or "controller": a controller has no records and no groups. */
export const SERVICE = meta("service");
export const RELEASE = meta("release");

/** The address of a path of this process, such as "/v1/topics". */
export const at = (path) => ROOT + path;
/** The address of a page of the console: `page("/topics")`. */
export const page = (path) => ROOT + "/ui" + (path === "/" ? "" : path);
