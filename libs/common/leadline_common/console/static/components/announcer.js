// Tells readers of the screen what has changed: `announce("1 partition without a leader")`.

import { html, signal } from "../lib/dom.js";

const said = signal("");

/** Have a sentence read out when the reader of the screen is idle; repeated ones are read again. */
export function announce(text) {
  said.value = said.value === text ? `${text}\u00a0` : text;
}

export const Announcer = () => html`<div class="vh" role="status" aria-live="polite">${said.value}</div>`;
