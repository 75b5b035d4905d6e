// A field of a form. Values are text, except those of checkboxes (booleans); `number` fields are
// checked to be whole numbers, and the request converts them.

import { html, useId } from "../lib/dom.js";

/**
 * @typedef {{name: string, label: string, type?: "text" | "number" | "checkbox" | "select" | "textarea",
 *   value?: any, required?: boolean, hint?: string, wide?: boolean, least?: number, most?: number,
 *   options?: {value: string, label: string}[], check?: (value: any, values: object) => string,
 *   when?: (values: object) => boolean, quiet?: boolean}} FieldShape `when` says whether the form
 *   has the field; a quiet one does not say that it is optional
 */

/** The first values of fields. @param {FieldShape[]} fields */
export const valuesOf = (fields) =>
  Object.fromEntries(fields.map((field) => [field.name, field.value ?? (field.type === "checkbox" ? false : field.options?.[0]?.value ?? "")]));

/** What is wrong with the value of a field, "" if nothing. @param {FieldShape} field */
export function problemOf(field, values) {
  const value = values[field.name];
  if (field.required && (value === "" || value == null)) return "is needed";
  if (field.type === "number" && value !== "") {
    const number = Number(value);
    if (!Number.isSafeInteger(number)) return "must be a whole number";
    if (field.least != null && number < field.least) return `must be at least ${field.least}`;
    if (field.most != null && number > field.most) return `must be at most ${field.most}`;
  }
  return field.check?.(value, values) ?? "";
}

/** @param {{field: FieldShape, values: object, onChange: (name: string, value: any) => void}} props */
export function Field({ field, values, onChange }) {
  const id = useId();
  const value = values[field.name];
  const problem = problemOf(field, values);
  const shown = problem && value !== "" && value !== false;
  const look = ["field", field.type === "checkbox" && "check", (field.wide || field.type === "textarea") && "wide"];
  const common = {
    id,
    "aria-describedby": `${id}-more`,
    "aria-invalid": shown ? "true" : undefined,
    required: field.required,
  };
  const label = html`<label for=${id}>${field.label}${field.required || field.quiet ? "" : field.type === "checkbox" ? "" : html` <span class="muted">(optional)</span>`}</label>`;
  const input = inputOf(field, value, common, (next) => onChange(field.name, next));
  return html`<div class=${look.filter(Boolean).join(" ")}>
    ${field.type === "checkbox" ? [input, label] : [label, input]}
    <span id=${`${id}-more`} class=${shown ? "wrong" : "hint"} hidden=${!shown && !field.hint}>${shown ? problem : field.hint}</span></div>`;
}

function inputOf(field, value, common, set) {
  if (field.type === "checkbox") return html`<input type="checkbox" checked=${value} onChange=${(event) => set(event.target.checked)} ...${common} />`;
  const onInput = (event) => set(event.target.value);
  if (field.type === "select") {
    return html`<select value=${value} onChange=${onInput} ...${common}>${field.options.map((one) => html`<option value=${one.value} selected=${one.value === value}>${one.label}</option>`)}</select>`;
  }
  if (field.type === "textarea") return html`<textarea rows="5" value=${value} onInput=${onInput} ...${common}></textarea>`;
  return html`<input type="text" inputmode=${field.type === "number" ? "numeric" : undefined} autocomplete="off" value=${value} onInput=${onInput} ...${common} />`;
}
