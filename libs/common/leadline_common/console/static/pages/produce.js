// The action that appends a record to a topic.

import { html } from "../lib/dom.js";
import { named, quoted } from "../lib/commands.js";
import { count } from "../lib/format.js";
import { base64Of } from "../lib/record_bytes.js";

const BASE64 = /^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const SEPARATORS = ["\t", ":", "|", "::", "=>"];

/** Lines of name=value, in order, as headers; names may repeat. */
const headersOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
  const at = line.indexOf("=");
  return at < 1 ? null : { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
});

function valueProblem(value, values) {
  if (values.null) return "";
  if (values.form === "base64") return BASE64.test(value.trim()) ? "" : "is not base64";
  if (values.form !== "json") return "";
  try {
    JSON.parse(value);
    return "";
  } catch (problem) {
    return `is not JSON: ${problem.message}`;
  }
}

function recordOf(values) {
  const binary = values.form === "base64";
  const encoded = (text) => (binary ? base64Of(text) : text);
  const headers = headersOf(values.headers).map((header) => ({ name: header.name, value: encoded(header.value) }));
  return {
    value: values.null ? null : binary ? values.value.trim() : values.value,
    ...(values.key ? { key: encoded(values.key) } : {}),
    ...(headers.length ? { headers } : {}),
    ...(values.partition ? { partition: Number(values.partition) } : {}),
  };
}

const separatorOf = (values) => SEPARATORS.find((one) => !values.key.includes(one));

/** The command sends lines of text: whether it can send this. */
const isLine = (values) => !values.null && values.form !== "base64" && !/[\r\n]/.test(values.value + values.key) && separatorOf(values) !== undefined;

export const produce = (topic, partition) => ({
  operation: "produce_to_topic",
  on: { topic },
  title: `Produce a record to ${topic}`,
  verb: "Produce",
  about: "Without a partition, the key chooses it, by the same hash as in clients.",
  fields: [
    { name: "partition", label: "Partition", type: "number", least: 0, value: partition ?? "", hint: "By default, that of the key" },
    { name: "key", label: "Key" },
    { name: "form", label: "The value is", type: "select", options: [{ value: "text", label: "text" }, { value: "json", label: "JSON (checked)" }, { value: "base64", label: "bytes in base64" }] },
    { name: "null", label: "No value: a tombstone", type: "checkbox" },
    { name: "value", label: "Value", type: "textarea", when: (values) => !values.null, check: valueProblem },
    { name: "headers", label: "Headers", type: "textarea", hint: "One a line, such as source=web", check: (text) => (headersOf(text).includes(null) ? "each line is name=value" : "") },
  ],
  request: (values) => ({
    method: "POST",
    path: `/v1/topics/${encodeURIComponent(topic)}/records`,
    body: { records: [recordOf(values)], ...(values.form === "base64" ? { format: "base64" } : {}) },
  }),
  input: (values) => `printf '%s\\n' ${quoted(values.key ? values.key + separatorOf(values) + values.value : values.value)} | `,
  cli: (values) => (isLine(values) ? [
    "produce", named(topic),
    ...(values.key ? ["--key-separator", separatorOf(values)] : []),
    ...(values.partition ? ["--partition", values.partition] : []),
    ...headersOf(values.headers).flatMap(({ name, value }) => ["--header", `${name}=${value}`]),
  ] : null),
  confirm: () => `Append this record to ${topic}? A record cannot be taken back.`,
  show: (body) => html`<p>${body.records.map((one) => (one.error ? one.error.message : `Appended to partition ${one.partition} at offset ${count(one.offset)}.`))}</p>`,
  next: (body) => ({ to: `/topics/${encodeURIComponent(topic)}/records?partition=${body.records[0].partition}&offset=${body.records[0].offset}`, text: "Show it" }),
});
