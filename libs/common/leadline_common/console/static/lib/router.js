// Pages by path: `location` is a signal, `go` changes it, `Link` is a link within the console.
//
//   html`<${Link} to="/topics/orders">orders<//>`
//   go("/tasks?state=running");

import { html, signal } from "./dom.js";
import { ROOT, page } from "./site.js";

const read = () => ({
  path: window.location.pathname.slice(ROOT.length + "/ui".length).replace(/\/$/, "") || "/",
  query: new URLSearchParams(window.location.search),
});

/** Where the user is: {path: "/topics/orders", query: URLSearchParams}. */
export const location = signal(read());

/**
 * Show a page.
 * @param {string} to such as "/topics?filter=x"
 * @param {{replace?: boolean}} [options] `replace` for what the back button is not to undo
 */
export function go(to, { replace = false } = {}) {
  window.history[replace ? "replaceState" : "pushState"](null, "", page(to));
  const before = location.value.path;
  location.value = read();
  if (before !== location.value.path) window.scrollTo(0, 0);
}

/** Set parameters of the query without leaving the page; null or "" removes one. */
export function setQuery(changes) {
  const query = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(location.value.path + (text ? `?${text}` : ""), { replace: true });
}

/** A link to a page of the console; `current` marks it as the page that is shown. */
export function Link({ to, children, current = false, ...rest }) {
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${page(to)} onClick=${follow} aria-current=${current ? "page" : undefined} ...${rest}>${children}</a>`;
}

/**
 * Match a path with a pattern such as "/topics/:topic"; null if it does not match.
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const found = path.split("/");
  if (wanted.length !== found.length) return null;
  const values = {};
  for (let i = 0; i < wanted.length; i += 1) {
    if (wanted[i].startsWith(":")) values[wanted[i].slice(1)] = decoded(found[i]);
    else if (wanted[i] !== found[i]) return null;
  }
  return values;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

window.addEventListener("popstate", () => { location.value = read(); });
