// Shows its content to users who have a right, and to others why not; for those nothing is read.
//
//   html`<${Allowed} to="read_audit"><${Audit} /><//>`

import { html } from "../lib/dom.js";
import { may, me } from "../store/me.js";
import { Notice } from "./notice.js";

/** @param {{to: string, on?: {topic?: string, group?: string}, children: any}} props `to` is an operation id */
export function Allowed({ to, on, children }) {
  if (!me.value) return html`<p class="muted">Loading …</p>`;
  const why = may(to, on);
  return why ? html`<${Notice} tone="warn" title="Not allowed"><p>${why}</p><//>` : children;
}
