// A table that can be sorted and filtered. However many rows it has, only those in view are in the
// document; all rows have the same height.
//
//   html`<${Table} caption="Topics" rows=${topics} rowKey=${(topic) => topic.name} filter=${(topic) => topic.name}
//     columns=${[
//       { title: "Topic", header: true, cell: (topic) => html`<${Link} …/>`, sort: (topic) => topic.name },
//       { title: "Partitions", number: true, cell: (topic) => count(topic.partitions), sort: (topic) => topic.partitions },
//     ]} />`
//
// `filter` returns the text in which a row is searched. `onRange(first, last, rows)` tells which
// rows (indexes, exclusive end) are in view, for data that is read for those only; `onOrder(title)`
// tells by which column they are sorted (null: by none), because that needs the data of all rows.

import { html, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { count, plural } from "../lib/format.js";

const ROW = 34;
const BEYOND = 8;

/**
 * @typedef {{title: any, name?: string, cell: (row: any) => any, sort?: (row: any) => any,
 *   number?: boolean, header?: boolean, class?: string}} Column
 * @param {{caption: string, columns: Column[], rows: any[], rowKey: (row: any) => string,
 *   filter?: (row: any) => string, empty?: string, tools?: any, class?: string, height?: string,
 *   onRange?: (first: number, last: number, rows: any[]) => void,
 *   onOrder?: (title: string | null) => void, noun?: string}} props
 */
export function Table({ caption, columns, rows, rowKey, filter, empty = "There is nothing here.", tools, onRange, onOrder, noun = "row", height, ...rest }) {
  const [order, setOrder] = useState({ column: -1, down: false });
  const [text, setText] = useState("");
  const id = useId();
  const shown = useMemo(() => arranged(rows, columns, order, filter, text), [rows, columns.length, order, text]);
  const scroll = useRef(null);
  const range = useRange(scroll, shown.length);
  useEffect(() => onOrder?.(columns[order.column]?.title ?? null), [order.column]);
  useEffect(() => onRange?.(range.first, range.last, shown), [range.first, range.last, shown]);
  return html`<div class="form">
    ${(filter || tools) && html`<div class="table-tools">
      ${filter && html`<label class="buttons"><span>Filter</span>
        <input type="search" value=${text} aria-describedby=${id} onInput=${(event) => setText(event.target.value)} /></label>`}
      ${tools}
      <span class="count" id=${id} role="status">${shown.length === rows.length ? plural(rows.length, noun) : `${count(shown.length)} of ${plural(rows.length, noun)}`}</span>
    </div>`}
    <div class="table-scroll" ref=${scroll} tabindex="0" role="region" aria-label=${caption} style=${height ? { maxHeight: height } : undefined}>
      <table class=${rest.class} aria-rowcount=${shown.length + 1}>
        <caption class="vh">${caption}</caption>
        <thead><tr aria-rowindex="1">${columns.map((column, i) => html`<${Head} column=${column} at=${i} order=${order} setOrder=${setOrder} />`)}</tr></thead>
        <tbody>
          <${Space} rows=${range.first} height=${range.height} span=${columns.length} />
          ${shown.slice(range.first, range.last).map((row, i) => html`<tr key=${rowKey(row)} aria-rowindex=${range.first + i + 2} data-row>
            ${columns.map((column) => html`<${Cell} column=${column} row=${row} />`)}</tr>`)}
          <${Space} rows=${shown.length - range.last} height=${range.height} span=${columns.length} />
        </tbody>
      </table>
      ${!shown.length && html`<p class="table-empty">${rows.length ? "No row matches the filter." : empty}</p>`}
    </div>
  </div>`;
}

function arranged(rows, columns, order, filter, text) {
  const wanted = text.trim().toLowerCase();
  const found = wanted && filter ? rows.filter((row) => filter(row).toLowerCase().includes(wanted)) : rows;
  const sort = columns[order.column]?.sort;
  if (!sort) return found;
  const keyed = found.map((row) => ({ row, key: sort(row) }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (order.down ? -1 : 1));
  return keyed.map((one) => one.row);
}

/** The rows in view, and the height of a row. */
function useRange(scroll, total) {
  const [view, setView] = useState({ top: 0, height: 800, row: ROW });
  useLayoutEffect(() => {
    const box = scroll.current;
    let frame = 0;
    const look = () => {
      frame = 0;
      const row = box.querySelector("tr[data-row]")?.getBoundingClientRect().height || ROW;
      // In steps of rows: most movements draw nothing.
      const top = Math.floor(box.scrollTop / (row * BEYOND)) * BEYOND;
      setView((now) => (now.top === top && now.height === box.clientHeight && now.row === row ? now : { top, height: box.clientHeight, row }));
    };
    const soon = () => { frame ||= requestAnimationFrame(look); };
    // Observing begins with a call, once the page is laid out: looking now would force a layout.
    const resize = new ResizeObserver(soon);
    resize.observe(box);
    box.addEventListener("scroll", soon, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      resize.disconnect();
      box.removeEventListener("scroll", soon);
    };
  }, []);
  const visible = Math.ceil(Math.max(view.height, 300) / view.row);
  const first = Math.max(0, Math.min(view.top, total - visible) - BEYOND);
  return { first, last: Math.min(total, view.top + visible + 2 * BEYOND), height: view.row };
}

const Space = ({ rows, height, span }) => rows > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${span} style=${{ height: `${rows * height}px` }}></td></tr>`;

function Head({ column, at, order, setOrder }) {
  const own = order.column === at;
  const turn = () => setOrder({ column: own && order.down ? -1 : at, down: own && !order.down });
  return html`<th scope="col" class=${[column.number && "number", column.class].filter(Boolean).join(" ")}
    aria-sort=${own ? (order.down ? "descending" : "ascending") : undefined}>
    ${column.sort ? html`<button type="button" onClick=${turn}>${column.title}<span aria-hidden="true">${own ? (order.down ? "↓" : "↑") : ""}</span></button>` : column.title}</th>`;
}

function Cell({ column, row }) {
  const look = [column.number && "number", column.class].filter(Boolean).join(" ");
  return column.header ? html`<th scope="row" class=${look}>${column.cell(row)}</th>` : html`<td class=${look}>${column.cell(row)}</td>`;
}
