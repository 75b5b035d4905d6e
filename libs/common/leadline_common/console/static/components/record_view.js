// One record: key, headers and value as text, JSON or hex; what is long is cut until asked for.
//
//   html`<${RecordView} record=${record} form="text" />`

import { html, useState } from "../lib/dom.js";
import { bytes as sized, count, time } from "../lib/format.js";
import { anyText, hexOf, jsonOf, textOf } from "../lib/record_bytes.js";

/** Bytes of a value that are shown at first. */
const CUT = 4096;
export const FORMS = { text: "Text", json: "JSON", hex: "Hex" };

/** Bytes in a form, and a word about them if they are not of it. */
function shownAs(bytes, form) {
  if (form === "hex") return { text: hexOf(bytes) };
  if (form === "json") {
    const json = jsonOf(bytes);
    return json === null ? { text: anyText(bytes), note: "This is not JSON." } : { text: json };
  }
  return { text: anyText(bytes), note: textOf(bytes) === null ? "This is not text: look at it as hex." : "" };
}

/** A key or a value. @param {{title: string, bytes: Uint8Array | null, form: string}} props */
function Content({ title, bytes, form }) {
  const [all, setAll] = useState(false);
  if (bytes === null) return html`<section aria-label=${title}><h3>${title}</h3><p class="muted">null${title === "Value" ? ": a tombstone" : ""}</p></section>`;
  const cut = !all && bytes.length > CUT;
  // What is cut cannot be parsed as a whole.
  const { text, note } = form === "json" && cut && jsonOf(bytes) !== null ? { text: jsonOf(bytes).slice(0, CUT) } : shownAs(cut ? bytes.subarray(0, CUT) : bytes, form);
  return html`<section class="record-part" aria-label=${title}>
    <h3>${title} <span class="muted">${sized(bytes.length)}</span></h3>
    ${note && html`<p class="muted">${note}</p>`}
    <pre class="record-bytes" tabindex="0" role="group" aria-label=${`${title} as ${FORMS[form]}`}>${text}</pre>
    ${cut && html`<p class="buttons"><span class="muted">The first ${sized(CUT)} of ${sized(bytes.length)}</span>
      <button type="button" onClick=${() => setAll(true)}>Show all of the ${title.toLowerCase()}</button></p>`}
  </section>`;
}

/** @param {{record: import("../store/records.js").StoredRecord, form: string}} props */
export function RecordView({ record, form: first }) {
  const [form, setForm] = useState(first);
  return html`<dl class="facts">
      <div><dt>Offset</dt><dd>${count(record.offset)}</dd></div>
      <div><dt>Time</dt><dd>${time(record.timestamp)}</dd></div>
      <div><dt>Timestamp</dt><dd class="mono">${record.timestamp}</dd></div>
    </dl>
    <fieldset class="choice"><legend>Show as</legend>${Object.entries(FORMS).map(([value, text]) => html`<label>
      <input type="radio" name="form" value=${value} checked=${form === value} onChange=${() => setForm(value)} /> ${text}</label>`)}</fieldset>
    <${Content} title="Key" bytes=${record.key} form=${form} />
    <section class="record-part" aria-label="Headers"><h3>Headers</h3>
      ${record.headers.length ? html`<dl class="facts">${record.headers.map(({ name, value }) => html`<div><dt>${name}</dt><dd class="mono">${value === null ? "null" : form === "hex" || textOf(value) === null ? hexOf(value) : anyText(value)}</dd></div>`)}</dl>` : html`<p class="muted">none</p>`}</section>
    <${Content} title="Value" bytes=${record.value} form=${form} />`;
}
