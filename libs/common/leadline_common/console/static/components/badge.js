// A state in a word, with a tone: "good", "warn", "bad", "info" or none. The sign before the word
// tells the tones apart without colour.
//
//   html`<${Badge} tone="bad">offline<//>`

import { html } from "../lib/dom.js";

const SIGNS = { good: "✓", warn: "▲", bad: "✕", info: "•" };

/** @param {{tone?: "good" | "warn" | "bad" | "info", children: any}} props */
export const Badge = ({ tone, children }) => html`<span class="badge" data-tone=${tone}>
  ${tone && html`<span aria-hidden="true">${SIGNS[tone]}</span>`}${children}</span>`;

/** A number with its name. @param {{name: string, tone?: string, more?: any, children: any}} props */
export const Stat = ({ name, tone, more, children }) => html`<div class="stat" data-tone=${tone}>
  <dt>${tone === "bad" || tone === "warn" ? html`<span aria-hidden="true">${SIGNS[tone]} </span>` : ""}${name}</dt>
  <dd>${children}${more && html`<span class="more">${more}</span>`}</dd></div>`;
