// The cluster at a time of the past, with the audit entries around it. Reading it is a lot of work
// for the controller, so only the moment at which the user stays is read.

import { get } from "../lib/api.js";
import { useEffect, useState } from "../lib/dom.js";
import { auditPath } from "./audit.js";
import { healthOf } from "./health.js";

const SETTLED_MS = 250;
const AROUND = 8;

/** The rebuilt cluster as `healthOf` takes it. @param {object} body of `GET /v1/cluster?at=` */
function clusterOf(body) {
  const topics = Object.entries(body.topics).map(([name, topic]) => [name, { topicId: topic.topic_id, rows: new Map(topic.partitions.map((row) => [row[0], row])) }]);
  return { brokers: new Map((body.brokers ?? []).map((id) => [id, { id }])), topics: new Map(topics) };
}

/**
 * @param {number | null} at Unix ms; null: nothing is read
 * @returns {{at: number, body: object | null, found: object | null, earlier: object[], later: object[],
 *   error: any, busy: boolean}} `at` is the time of what is shown; entries are the nearest first
 */
export function usePast(at) {
  const [shown, setShown] = useState({ at: 0, body: null, found: null, earlier: [], later: [], error: null, busy: false });
  useEffect(() => {
    if (at == null) return undefined;
    const stop = new AbortController();
    setShown((before) => ({ ...before, busy: true }));
    const read = async () => {
      try {
        const next = await pastAt(at, stop.signal);
        if (!stop.signal.aborted) setShown(next);
      } catch (error) {
        if (!stop.signal.aborted) setShown((before) => ({ ...before, error, busy: false }));
      }
    };
    const timer = setTimeout(read, SETTLED_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [at]);
  return shown;
}

async function pastAt(at, signal) {
  const [state, earlier, later] = await Promise.all([
    get(`/v1/cluster?at=${at}`, { signal }),
    get(auditPath({ order: "newest", until: at + 1, page_size: AROUND, outcome: "done" }), { signal }),
    get(auditPath({ order: "oldest", since: at + 1, page_size: AROUND, outcome: "done" }), { signal }),
  ]);
  const then = clusterOf(state.body);
  const rows = [...then.topics].flatMap(([topic, found]) => [...found.rows.values()].map((row) => ({ topic, row })));
  return { at, body: state.body, found: { ...healthOf(then), rows }, earlier: earlier.body.entries, later: later.body.entries, error: null, busy: false };
}

/**
 * When the oldest and the newest entry of the audit were written (Unix ms), 0 before it is known.
 * @param {boolean} again changes when the newest may be another one
 */
export function useEnds(again) {
  const [ends, setEnds] = useState({ oldest: 0, newest: 0 });
  useEffect(() => {
    let over = false;
    Promise.all(["oldest", "newest"].map((order) => get(auditPath({ order, page_size: 1, outcome: "done" }))))
      .then(([oldest, newest]) => { if (!over) setEnds({ oldest: oldest.body.entries[0]?.time ?? 0, newest: newest.body.entries[0]?.time ?? 0 }); })
      .catch(() => {}); // The state of the connection, or the state that is read, says why.
    return () => { over = true; };
  }, [again]);
  return ends;
}
