// Messages: `Notice` is static, `Failure` shows an ApiError, `Waiting` what is being read.

import { html } from "../lib/dom.js";
import { Link } from "../lib/router.js";

/** @param {{tone?: "good" | "warn" | "bad", title?: any, children?: any, live?: boolean}} props */
export const Notice = ({ tone, title, children, live = false }) => html`<div class="notice" data-tone=${tone}
  role=${live ? (tone === "bad" ? "alert" : "status") : undefined}>${title && html`<strong>${title}</strong>`}${children}</div>`;

const OUTCOMES = {
  refused: "Refused: nothing was changed",
  unknown: "Outcome unknown: it may have been changed. Look before you try again",
};

/** An ApiError; with `wrote`, what became of the change. @param {{error: any, wrote?: boolean}} props */
export function Failure({ error, wrote = false }) {
  const fields = error.body.fields ?? [];
  return html`<${Notice} tone=${error.outcome === "unknown" ? "warn" : "bad"} live
    title=${wrote ? OUTCOMES[error.outcome] : "This could not be read"}>
    <p>${error.message}</p>
    ${fields.length > 1 && html`<ul>${fields.map((one) => html`<li><code>${one.field}</code>: ${one.message}</li>`)}</ul>`}
    <p class="more">${error.status ? `Status ${error.status}` : "No status"}${error.code ? `, error code ${error.code}` : ""}${
      error.causeId && html`, cause <${Link} to=${`/history?cause=${encodeURIComponent(error.causeId)}`}>${error.causeId}<//>`}</p>
  <//>`;
}

/** What `usePolled` returned, while it has no data. @param {{of: import("../store/polled.js").Polled}} props */
export const Waiting = ({ of }) => (of.error && !of.data ? html`<${Failure} error=${of.error} />` : html`<p class="muted">Loading …</p>`);
