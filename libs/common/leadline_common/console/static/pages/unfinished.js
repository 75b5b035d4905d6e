// Pages of the navigation that are not built yet.

import { html } from "../lib/dom.js";
import { SERVICE } from "../lib/site.js";
import { Elsewhere } from "../components/elsewhere.js";
import { Notice } from "../components/notice.js";
import { Page } from "../components/page.js";

const unfinished = (title, command) => () => html`<${Page} title=${title}>
  <${Notice} title="This page is not there yet"><p>Until then: <code>${command}</code></p><//><//>`;

export const Groups = () => (SERVICE === "broker" ? unfinished("Groups", "leadline groups list")() : html`<${Page} title="Groups"><${Elsewhere} what="Consumer groups" /><//>`);
export const Tasks = unfinished("Tasks", "leadline tasks list");
export const History = unfinished("History", "leadline audit");
