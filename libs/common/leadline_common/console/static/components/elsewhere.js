// On a controller, what only brokers have: says so, and links the same page of each live broker.

import { html } from "../lib/dom.js";
import { location } from "../lib/router.js";
import { cluster, drawn } from "../store/cluster.js";
import { Notice } from "./notice.js";

/** @param {{what: string}} props `what` is the subject: "Records", "Consumer groups" */
export function Elsewhere({ what }) {
  drawn.value;
  const { path } = location.value;
  const brokers = [...cluster.brokers.values()];
  return html`<${Notice} title=${`${what} are shown by brokers`}>
    <p>${brokers.length ? html`This is a controller. The same page at ${brokers.map((broker, i) => html`${i > 0 && ", "}<a href=${`${broker.url}/ui${path}`}>broker ${broker.id}</a>`)}` : "No broker is live."}</p>
  <//>`;
}
