// Starts the console: draws the page of the path, and follows the cluster.

import { html, render, useEffect, useErrorBoundary, useRef } from "./lib/dom.js";
import { location, match } from "./lib/router.js";
import { ActionDialog } from "./components/action_form.js";
import { Notice } from "./components/notice.js";
import { Page } from "./components/page.js";
import { Shell } from "./components/shell.js";
import { PAGES } from "./pages/index.js";
import { follow } from "./store/live.js";
import { sampleRates } from "./store/rates.js";

function App() {
  const { path } = location.value;
  return html`<${Shell} pages=${PAGES.filter((one) => one.title)}><${Drawn} path=${path}><${Current} path=${path} /><//><//>
    <${ActionDialog} />`;
}

/** A page, or why it cannot be drawn: without this, no other page could be drawn after it. */
function Drawn({ path, children }) {
  const failed = useRef("");
  const [problem, draw] = useErrorBoundary((error) => {
    failed.current = path;
    console.error(error);
  });
  useEffect(() => { if (problem && failed.current !== path) draw(); }, [path]);
  if (!problem) return children;
  return html`<${Page} title="This page cannot be drawn"><${Notice} tone="bad" live title="That is a defect of the console">
    <p>${String(problem.message ?? problem)}. The cluster is not affected; other pages work.</p><//><//>`;
}

function Current({ path }) {
  for (const { path: pattern, show } of PAGES) {
    const values = match(pattern, path);
    // Keyed by the values: another topic is another page, with a state of its own.
    if (values) return html`<${show} key=${`${pattern} ${Object.values(values)[0] ?? ""}`} ...${values} />`;
  }
  return html`<${Page} title="No such page"><${Notice} tone="warn">The console has no page ${path}.<//><//>`;
}

render(html`<${App} />`, document.getElementById("app"));
void follow();
void sampleRates();
