// The consumer groups, with the lag of those in view.

import { html, useMemo, useState } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { SERVICE } from "../lib/site.js";
import { useGroupLags } from "../store/group_lags.js";
import { usePolled } from "../store/polled.js";
import { Badge } from "../components/badge.js";
import { Elsewhere } from "../components/elsewhere.js";
import { Failure, Waiting } from "../components/notice.js";
import { Page } from "../components/page.js";
import { Table } from "../components/table.js";

const NONE = [];
const LAG = "Total lag";
const TONES = { stable: "good", empty: undefined, failed: "bad" };

/** The state of a group, as the API names it. */
export const GroupState = ({ state }) => html`<${Badge} tone=${state in TONES ? TONES[state] : "info"}>${state}<//>`;

export function Groups() {
  const groups = usePolled(SERVICE === "broker" ? "/v1/groups" : null, 3_000);
  const [inView, setInView] = useState([]);
  const [order, setOrder] = useState(null);
  const known = groups.data?.groups ?? NONE;
  // Only the lag of what is in view is read, but an order by lag needs that of all.
  const lags = useGroupLags(order === LAG ? known.map((row) => row.group) : inView);
  const all = useMemo(() => known.map((row) => ({ ...row, lag: lags.get(row.group) })), [known, lags]);
  if (SERVICE !== "broker") return html`<${Page} title="Groups"><${Elsewhere} what="Consumer groups" /><//>`;
  const look = (first, last, rows) => {
    const names = rows.slice(first, last).map((row) => row.group);
    if (names.join("\n") !== inView.join("\n")) setInView(names);
  };
  return html`<${Page} title="Groups" about="Consumer groups, with the records that each has still to read.">
    ${groups.data && groups.error && html`<${Failure} error=${groups.error} />`}
    ${groups.data ? html`<${Table} caption="Groups" rows=${all} rowKey=${(row) => row.group} filter=${(row) => `${row.group} ${row.state}`}
      noun="group" columns=${COLUMNS} onRange=${look} onOrder=${setOrder} empty="There are no consumer groups yet." />` : html`<${Waiting} of=${groups} />`}
  <//>`;
}

const COLUMNS = [
  { title: "Group", header: true, sort: (row) => row.group, cell: (row) => html`<${Link} to=${`/groups/${encodeURIComponent(row.group)}`}>${row.group}<//>` },
  { title: "State", sort: (row) => row.state, cell: (row) => html`<${GroupState} state=${row.state} />` },
  { title: "Members", number: true, sort: (row) => row.members, cell: (row) => count(row.members) },
  { title: LAG, number: true, sort: (row) => row.lag ?? -1, cell: (row) => count(row.lag) },
  { title: "Protocol", sort: (row) => row.protocol, cell: (row) => row.protocol },
  { title: "Assignor", sort: (row) => row.assignor, cell: (row) => row.assignor },
  { title: "Generation", number: true, sort: (row) => row.generation, cell: (row) => count(row.generation) },
];
