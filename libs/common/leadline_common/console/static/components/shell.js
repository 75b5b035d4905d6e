// The frame around all pages: navigation, the state of the connection, the theme, the user.

import { html, useEffect, useState } from "../lib/dom.js";
import { duration, time } from "../lib/format.js";
import { Link, location } from "../lib/router.js";
import { RELEASE, SERVICE, at } from "../lib/site.js";
import { choose, theme } from "../lib/theme.js";
import { cluster, drawn } from "../store/cluster.js";
import { connection, currentAt } from "../store/live.js";
import { me } from "../store/me.js";
import { Announcer, announce } from "./announcer.js";
import { Notice } from "./notice.js";

/** @param {{pages: {path: string, title: string, within?: string}[], children: any}} props */
export function Shell({ pages, children }) {
  return html`<div class="shell">
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <${Side} pages=${pages} />
    <div class="shell-main">
      <${Top} />
      <main id="content" tabindex="-1" class=${`shell-content${connection.value.state === "disconnected" ? " stale" : ""}`}>
        <${Disconnected} />
        ${children}
      </main>
    </div>
    <${Announcer} />
  </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

function Side({ pages }) {
  const [open, setOpen] = useState(false);
  const { path } = location.value;
  useEffect(() => setOpen(false), [path]);
  const isCurrent = (one) => path === one.path || (one.path !== "/" && path.startsWith(`${one.path}/`));
  return html`<div class="shell-side" data-open=${open ? "true" : "false"}>
    <div class="shell-head"><${Link} to="/" class="shell-brand"><img src=${at("/favicon.ico")} alt="" />Leadline<//>
      <button type="button" class="shell-toggle" aria-expanded=${open ? "true" : "false"} aria-controls="navigation" onClick=${() => setOpen(!open)}>Menu</button></div>
    <nav class="shell-nav" id="navigation" aria-label="Console"><ul>
      ${pages.map((one) => html`<li><${Link} to=${one.path} current=${isCurrent(one)}>${one.title}<//></li>`)}</ul></nav>
    <${Foot} />
  </div>`;
}

function Foot() {
  const user = me.value;
  return html`<footer class="shell-foot">
    ${user && html`<span>${user.authenticated ? html`User <strong>${user.user ?? "of a service"}</strong>${user.roles.length ? `: ${user.roles.join(", ")}` : ""}` : "No authentication: everybody may do everything"}</span>`}
    <label>Theme <select value=${theme.value} onChange=${(event) => choose(event.target.value)}>
      <option value="">as the system</option><option value="light">light</option><option value="dark">dark</option></select></label>
    <span class="links"><a href=${at("/docs")}>HTTP API</a><a href=${at("/metrics")}>Metrics</a></span>
    <span>Release ${RELEASE}</span>
  </footer>`;
}

const WORDS = { connecting: "Connecting", live: "Live", polling: "Live, by polling", disconnected: "Disconnected, trying again" };

function Top() {
  drawn.value;
  const { state } = connection.value;
  return html`<header class="shell-top">
    <span class="where">Cluster <span class="mono">${cluster.clusterId || "…"}</span>, seen by this ${SERVICE}</span>
    <span class="end"><span class="connection" data-state=${state} role="status" aria-label="Connection">${WORDS[state]}</span></span>
  </header>`;
}

/** Says that what is shown may be old. */
function Disconnected() {
  const [now, setNow] = useState(Date.now());
  const { state, problem, since } = connection.value;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (state === "disconnected") announce("Disconnected: what is shown may be old");
  }, [state]);
  // A moment without a connection is usual when a controller changes.
  if (state !== "disconnected" || now - since < 1_000) return null;
  const read = currentAt.value;
  const age = read ? `What is shown is from ${time(read)}, ${duration(Math.max(1_000, now - read))} ago.` : "Nothing was read yet.";
  return html`<${Notice} tone="warn" title="Disconnected, trying again">
    <p>${age} ${problem}</p>
    ${[...cluster.brokers.values()].length > 0 && html`<p class="more">Other brokers may answer: ${[...cluster.brokers.values()].map((broker, i) => html`${i > 0 && ", "}<a href=${`${broker.url}/ui`}>broker ${broker.id}</a>`)}</p>`}
  <//>`;
}
