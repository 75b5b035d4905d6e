// The past of the cluster: every change with its cause, why a partition has its leader, and the
// cluster as it was.

import { html } from "../lib/dom.js";
import { Allowed } from "../components/allowed.js";
import { Page } from "../components/page.js";
import { Tabs } from "../components/tabs.js";
import { Audit } from "./audit.js";
import { AuditEntry } from "./audit_entry.js";
import { Explain } from "./explain.js";
import { Past } from "./past.js";

const TABS = [["/history", "Audit"], ["/history/partition", "Why this leader"], ["/history/past", "The cluster's past"]];
const SHOWN = { "": Audit, partition: Explain, past: Past };
const NEEDS = { "": "read_audit", partition: "read_partition_history", past: "read_audit" };

/** @param {{tab?: string}} props a part of this page, or the id of an audit entry */
export function History({ tab = "" }) {
  const shown = SHOWN[tab];
  if (!shown) return html`<${AuditEntry} id=${tab} />`;
  return html`<${Page} title="History" about="What changed, when, by whom, and why.">
    <${Tabs} name="Parts of the history" tabs=${TABS} />
    <${Allowed} to=${NEEDS[tab]}><${shown} /><//>
  <//>`;
}
