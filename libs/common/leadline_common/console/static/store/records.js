// Reading records: any broker passes a read on to the leader of the partition.

import { get } from "../lib/api.js";
import { bytesOf } from "../lib/record_bytes.js";

/** The most stored bytes of one answer; a larger record comes alone. */
const MAX_BYTES = 1024 * 1024;
/** How often a smaller or an earlier range is tried: what is missing comes with the next page. */
const TRIES = 12;

/**
 * A record with its bytes.
 * @typedef {{offset: number, timestamp: number, key: Uint8Array | null, value: Uint8Array | null,
 *   headers: {name: string, value: Uint8Array | null}[]}} StoredRecord
 * @typedef {{records: StoredRecord[], next: number}} RecordPage `next` is the offset after them
 */

const base = (topic, partition) => `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}`;

/** The readable range of a partition; with a time (Unix ms), the first offset at or after it. */
export const offsetsPath = (topic, partition) => `${base(topic, partition)}/offsets?route=any`;

/** The first offset at or after a time, null if there is none. No record is older than 1970. */
export async function offsetAt(topic, partition, timestamp) {
  const { body } = await get(`${offsetsPath(topic, partition)}&timestamp=${Math.max(0, timestamp)}`);
  return body.offset;
}

/** Records from an offset on. @returns {Promise<RecordPage>} */
export async function readFrom(topic, partition, offset, most, options = {}) {
  const path = `${base(topic, partition)}/records?offset=${offset}&max_records=${most}&max_bytes=${MAX_BYTES}&format=base64&route=any`;
  const { body } = await get(path, options);
  return { records: body.records.map(withBytes), next: body.next_offset };
}

/** The last records before an offset. @returns {Promise<RecordPage>} */
export async function readBefore(topic, partition, end, most, start, options = {}) {
  let width = most;
  let stop = end;
  for (let i = 0; i < TRIES && stop > start; i += 1) {
    const first = Math.max(start, stop - width);
    const found = await readFrom(topic, partition, first, most, options);
    const records = found.records.filter((record) => record.offset < end);
    // Large records: what was read ends too early. Offsets without a record: look further back.
    if (found.next < stop && width > 1) width = Math.max(1, Math.floor(width / 4));
    else if (records.length) return { records, next: Math.min(found.next, end) };
    else stop = first;
  }
  return { records: [], next: end };
}

const withBytes = (record) => ({
  ...record,
  key: bytesOf(record.key),
  value: bytesOf(record.value),
  headers: record.headers.map(({ name, value }) => ({ name, value: bytesOf(value) })),
});
