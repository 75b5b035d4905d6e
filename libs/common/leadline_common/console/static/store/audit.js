// Entries of the audit, page by page, newest first; new ones are added while a component shows them.

import { get } from "../lib/api.js";
import { useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { usePolled } from "./polled.js";

const PAGE = 100;

/** The path of a page of the audit. @param {Record<string, string | number>} wanted */
export function auditPath(wanted) {
  const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== "" && value != null));
  return `/v1/audit?${query}`;
}

/**
 * @param {Record<string, string | number>} wanted parameters of `GET /v1/audit`
 * @returns {{entries: object[], first: import("./polled.js").Polled, more: boolean, busy: boolean,
 *   error: any, older: () => void}} `first` is the newest page; `error` is that of `older`
 */
export function useAudit(wanted) {
  const path = auditPath({ ...wanted, page_size: PAGE });
  const first = usePolled(path, 3_000);
  const [past, setPast] = useState({ path, entries: [], cursor: undefined, busy: false, error: null });
  const kept = useRef({ path, entries: new Map() });
  useEffect(() => {
    kept.current = { path, entries: new Map() };
    setPast({ path, entries: [], cursor: undefined, busy: false, error: null });
  }, [path]);
  const entries = useMemo(() => merged(kept, path, first.data?.entries ?? [], past), [path, first.data, past.entries]);
  const cursor = past.cursor === undefined ? first.data?.next_cursor : past.cursor;
  const older = async () => {
    setPast((now) => ({ ...now, busy: true, error: null }));
    try {
      const { body } = await get(`${path}&cursor=${encodeURIComponent(cursor)}`);
      setPast((now) => (now.path === path ? { ...now, busy: false, cursor: body.next_cursor, entries: [...now.entries, ...body.entries] } : now));
    } catch (error) {
      setPast((now) => ({ ...now, busy: false, error }));
    }
  };
  return { entries, first, more: cursor != null, busy: past.busy, error: past.error, older };
}

/** What was read under this path, by id: the newest page moves on, and leaves no gap. */
function merged(kept, path, newest, past) {
  if (kept.current.path !== path) kept.current = { path, entries: new Map() };
  const known = kept.current.entries;
  for (const entry of newest) known.set(entry.id, entry);
  if (past.path === path) for (const entry of past.entries) known.set(entry.id, entry);
  return [...known.values()].sort((a, b) => b.id - a.id);
}
