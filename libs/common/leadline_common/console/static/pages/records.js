// The records of one partition: by offset, by time, or the newest as they arrive.

import { html, useEffect, useMemo, useState } from "../lib/dom.js";
import { bytes as sized, count, time } from "../lib/format.js";
import { preview } from "../lib/record_bytes.js";
import { location, setQuery } from "../lib/router.js";
import { SERVICE } from "../lib/site.js";
import { cluster, drawn } from "../store/cluster.js";
import { may } from "../store/me.js";
import { usePolled } from "../store/polled.js";
import { offsetAt, offsetsPath, readBefore, readFrom } from "../store/records.js";
import { ActionButton } from "../components/action_form.js";
import { Dialog } from "../components/dialog.js";
import { Elsewhere } from "../components/elsewhere.js";
import { Failure, Notice } from "../components/notice.js";
import { FORMS, RecordView } from "../components/record_view.js";
import { Table } from "../components/table.js";
import { produce } from "./produce.js";

const SIZES = [50, 200, 1000];

/** @param {{topic: string}} props */
export function Records({ topic }) {
  drawn.value;
  if (SERVICE !== "broker") return html`<${Elsewhere} what="Records" />`;
  const why = may("fetch", { topic });
  if (why) return html`<${Notice} tone="warn" title="Not allowed">${why}<//>`;
  const { query } = location.value;
  const partition = Number(query.get("partition") ?? 0);
  const total = cluster.topics.get(topic)?.rows.size ?? 0;
  if (!Number.isSafeInteger(partition) || partition < 0 || partition >= total) {
    return html`<${Notice} tone="warn" title="There is no such partition"><p>${topic} has the partitions 0 to ${count(total - 1)}.</p><//>`;
  }
  return html`<${Browser} key=${partition} topic=${topic} partition=${partition} total=${total} />`;
}

/** The offset of the query; null for the newest records. */
const wantedOffset = () => {
  const text = location.value.query.get("offset") ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
};

/** What is shown: {records, next}, or the error of the last read. */
function usePage(topic, partition, size, ends) {
  const [page, setPage] = useState({ records: [], next: 0, error: null, loading: true });
  const offset = wantedOffset();
  const start = ends?.log_start_offset;
  const end = ends?.high_watermark;
  // A page that is full, at a stated offset, does not change.
  const open = offset === null || page.loading || page.error || page.records.length < size;
  useEffect(() => {
    if (end === undefined) return undefined;
    const stop = new AbortController();
    const options = { signal: stop.signal };
    const reading = offset === null ? readBefore(topic, partition, end, size, start, options) : readFrom(topic, partition, offset, size, options);
    reading.then((found) => setPage({ ...found, error: null, loading: false }), (error) => {
      if (error.name !== "AbortError") setPage((before) => ({ ...before, records: [], error, loading: false }));
    });
    return () => stop.abort();
  }, [topic, partition, size, offset, open ? end : 0, end === undefined]);
  return page;
}

function Browser({ topic, partition, total }) {
  const [size, setSize] = useState(SIZES[0]);
  const [form, setForm] = useState("text");
  const [shown, setShown] = useState(null);
  const polled = usePolled(offsetsPath(topic, partition), 2_000);
  const ends = polled.data;
  const page = usePage(topic, partition, size, ends);
  const following = wantedOffset() === null;
  const first = page.records[0]?.offset ?? wantedOffset() ?? ends?.high_watermark ?? 0;
  // The newest on top, where they are seen as they arrive; what is read on from an offset, in its order.
  const rows = useMemo(() => (following ? [...page.records].reverse() : page.records), [page.records, following]);
  return html`
    <${Where} topic=${topic} partition=${partition} total=${total} ends=${ends} />
    <${Moves} topic=${topic} partition=${partition} page=${page} first=${first} size=${size} ends=${ends} />
    ${polled.error && html`<${Failure} error=${polled.error} />`}
    ${page.error && html`<${Failure} error=${page.error} />`}
    <${Table} caption=${`Records of ${topic}-${partition}`} rows=${rows} rowKey=${(record) => record.offset} noun="record"
      columns=${columns(setShown)} filter=${textFor}
      tools=${html`<label class="buttons"><span>Show as</span><select value=${form} onChange=${(event) => setForm(event.target.value)}>${Object.entries(FORMS).map(([value, text]) => html`<option value=${value} selected=${value === form}>${text}</option>`)}</select></label>
        <label class="buttons"><span>Records at a time</span><select value=${size} onChange=${(event) => setSize(Number(event.target.value))}>${SIZES.map((one) => html`<option value=${one} selected=${one === size}>${one}</option>`)}</select></label>`}
      empty=${page.loading ? "Loading …" : ends && ends.high_watermark === ends.log_start_offset ? "The partition is empty." : "No record here: try the newest or the oldest."} />
    ${shown && html`<${Dialog} title=${`Record ${shown.offset} of ${topic}-${partition}`} onClose=${() => setShown(null)}><${RecordView} record=${shown} form=${form} /><//>`}`;
}

const textFor = (record) => `${record.offset} ${preview(record.key, 1_000) ?? ""} ${preview(record.value, 10_000) ?? ""} ${record.headers.map(({ name, value }) => `${name}=${preview(value) ?? ""}`).join(" ")}`;

const columns = (show) => [
  { title: "Offset", header: true, class: "narrow", cell: (record) => html`<button type="button" class="plain link" aria-label=${`Show record ${record.offset}`} onClick=${() => show(record)}>${count(record.offset)}</button>` },
  { title: "Time", class: "narrow", cell: (record) => time(record.timestamp) },
  { title: "Key", class: "narrow cut", cell: (record) => html`<${Brief} bytes=${record.key} most=${40} />` },
  { title: "Value", class: "cut", cell: (record) => html`<${Brief} bytes=${record.value} most=${160} />` },
  { title: "Headers", number: true, class: "narrow", cell: (record) => count(record.headers.length) },
  { title: "Size", number: true, class: "narrow", cell: (record) => sized((record.key?.length ?? 0) + (record.value?.length ?? 0)) },
];

const Brief = ({ bytes, most }) => (bytes === null ? html`<span class="muted">null</span>` : html`<span class="mono">${preview(bytes, most)}</span>`);

/** The partition, and what it has. */
function Where({ topic, partition, total, ends }) {
  const choose = (event) => setQuery({ partition: event.target.value, offset: "" });
  return html`<div class="table-tools">
    <label class="buttons"><span>Partition</span>${total <= 500
      ? html`<select value=${partition} onChange=${choose}>${Array.from({ length: total }, (_, i) => html`<option value=${i} selected=${i === partition}>${i}</option>`)}</select>`
      : html`<input inputmode="numeric" value=${partition} onChange=${choose} size="8" />`}</label>
    <span class="muted" role="status" aria-label="Offsets">${ends ? `Offsets ${count(ends.log_start_offset)} to ${count(ends.high_watermark)} (end), leader epoch ${count(ends.leader_epoch)}` : "Loading …"}</span>
    <span class="last"><${ActionButton} action=${produce(topic, String(partition))}>Produce a record …<//></span>
  </div>`;
}

function Moves({ topic, partition, page, first, size, ends }) {
  const [problem, setProblem] = useState("");
  const attempt = async (work) => {
    setProblem("");
    try {
      await work();
    } catch (error) {
      setProblem(error.message);
    }
  };
  const before = () => attempt(async () => {
    const found = await readBefore(topic, partition, Math.min(first, ends.high_watermark), size, ends.log_start_offset);
    setQuery({ offset: found.records[0]?.offset ?? ends.log_start_offset });
  });
  const byOffset = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("offset").trim().replaceAll(",", "");
    if (/^\d{1,15}$/.test(text)) void attempt(() => setQuery({ offset: text }));
    else setProblem("An offset is a whole number, 0 or more.");
  };
  const byTime = (event) => {
    event.preventDefault();
    const at = new Date(new FormData(event.target).get("time")).getTime();
    if (Number.isNaN(at)) setProblem("Choose a date and a time.");
    else void attempt(async () => {
      const found = await offsetAt(topic, partition, at);
      if (found === null) setProblem("No record is as new as that.");
      else setQuery({ offset: found });
    });
  };
  const known = Boolean(ends);
  // Where nothing could be read, there is no next page; records that are gone are before the first.
  const isFirst = known && !page.error && first <= ends.log_start_offset;
  const isLast = known && (page.error || page.next >= ends.high_watermark);
  const button = (text, off, work) => html`<button type="button" aria-disabled=${!known || off ? "true" : undefined} onClick=${() => known && !off && work()}>${text}</button>`;
  return html`<div class="table-tools" role="group" aria-label="Which records">
    <span class="buttons">${button("Oldest", isFirst, () => setQuery({ offset: ends.log_start_offset }))}
      ${button("Previous", isFirst, before)}
      ${button("Next", isLast, () => setQuery({ offset: page.next }))}
      ${button("Newest", false, () => setQuery({ offset: "" }))}</span>
    <form class="buttons" onSubmit=${byOffset}><label class="buttons"><span>Offset</span><input name="offset" inputmode="numeric" size="10" autocomplete="off" /></label><button>Go to offset</button></form>
    <form class="buttons" onSubmit=${byTime}><label class="buttons"><span>Time</span><input name="time" type="datetime-local" step="1" /></label><button>Go to time</button></form>
    <span role="status" class=${problem ? "wrong" : "muted"}>${problem || (wantedOffset() === null ? "The newest first, as they arrive" : "")}</span>
  </div>`;
}
