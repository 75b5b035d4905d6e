// The parts of a page as links: <${Tabs} name="Parts of the tasks" tabs=${[["/tasks", "Running"]]} />

import { html } from "../lib/dom.js";
import { Link, location } from "../lib/router.js";

/** @param {{name: string, tabs: [string, string][]}} props `tabs` are pairs of path and title */
export const Tabs = ({ name, tabs }) => html`<nav class="tabs" aria-label=${name}>
  ${tabs.map(([path, title]) => html`<${Link} to=${path} current=${location.value.path === path}>${title}<//>`)}</nav>`;
