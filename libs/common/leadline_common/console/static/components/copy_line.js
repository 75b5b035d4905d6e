// A line of a terminal with a button that copies it: <${CopyLine} name="curl line" text=${line} />

import { html } from "../lib/dom.js";
import { announce } from "./announcer.js";

/** @param {{name: string, text: string}} props */
export function CopyLine({ name, text }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(`The ${name} was copied`);
    } catch {
      announce("The browser does not allow copying: select the text");
    }
  };
  return html`<div class="line"><pre aria-label=${name} role="group">${text}</pre>
    <button type="button" onClick=${copy} aria-label=${`Copy the ${name}`}>Copy</button></div>`;
}
