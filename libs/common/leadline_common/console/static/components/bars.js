// Two values as two bars, before and after. The numbers beside them are what a screen reader gets.
//
//   html`<${Bars} before=${12} after=${8} most=${20} format=${count} />`

import { html } from "../lib/dom.js";

const width = (value, most) => ({ width: `${most > 0 ? (100 * value) / most : 0}%` });

/** @param {{before: number, after: number, most: number, format?: (value: number) => string}} props */
export const Bars = ({ before, after, most, format = String }) => html`<span class="buttons">
  <span class="bars" aria-hidden="true"><span class="before" style=${width(before, most)}></span><span class="after" style=${width(after, most)}></span></span>
  <span>${format(before)} → ${format(after)}</span></span>`;

export const BarsLegend = () => html`<ul class="legend" aria-label="Legend of the bars">
  <li><span class="bars" aria-hidden="true"><span class="before"></span></span> before</li>
  <li><span class="bars" aria-hidden="true"><span class="after"></span></span> after</li></ul>`;
