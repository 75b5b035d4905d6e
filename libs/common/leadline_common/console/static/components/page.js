// The frame of a page's content: its only h1, which gets the focus when the user comes to it.
//
//   html`<${Page} title="Topics" about="…" actions=${html`<${ActionButton} …/>`}>…<//>`

import { html, useEffect, useRef } from "../lib/dom.js";

let arrivals = 0;

/** @param {{title: string, about?: any, actions?: any, badge?: any, children?: any}} props */
export function Page({ title, about, actions, badge, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Leadline`;
    // Not at the first page: there the browser is where the user expects it.
    if (arrivals > 0) heading.current?.focus({ preventScroll: true });
    arrivals += 1;
  }, [title]);
  return html`
    <div class="page-head">
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      ${badge}
      ${actions && html`<div class="actions">${actions}</div>`}
      ${about && html`<p class="about">${about}</p>`}
    </div>
    ${children}`;
}

/** A titled part of a page. @param {{title: string, end?: any, children?: any, level?: number}} props */
export function Card({ title, end, children, ...rest }) {
  return html`<section class="card" aria-label=${title} ...${rest}>
    <header><h2>${title}</h2>${end && html`<div class="end">${end}</div>`}</header>
    ${children}
  </section>`;
}
