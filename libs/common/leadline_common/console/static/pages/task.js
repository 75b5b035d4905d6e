// One task: how far it is, what it waits for, its moves, its throttle.

import { html, useRef } from "../lib/dom.js";
import { bytes, count, rate, time } from "../lib/format.js";
import { Link } from "../lib/router.js";
import { usePolled } from "../store/polled.js";
import { Stat } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Failure, Notice, Waiting } from "../components/notice.js";
import { Card, Page } from "../components/page.js";
import { Moves, Progress, TaskButtons, TaskState, isOpen, timeLeft } from "./task_parts.js";

const BOUNDS = {
  own: "its own throttle", cluster_ceiling: "reassignment.throttle.bytes.per.s, which all tasks share",
  healing_ceiling: "failed.broker.throttle.bytes.per.s, which healing tasks share",
};

/** @param {{id: string}} props */
export function Task({ id }) {
  const found = usePolled(`/v1/tasks/${encodeURIComponent(id)}`, 1_500);
  const title = `Task ${id}`;
  if (found.error?.status === 404) {
    return html`<${Page} title=${title}><${Notice} tone="warn" title="There is no such task now">
      <p>It may have ended long ago: see <${Link} to="/tasks/past">Past tasks<//>.</p><//><//>`;
  }
  if (!found.data) return html`<${Page} title=${title}><${Waiting} of=${found} /><//>`;
  const task = found.data;
  return html`<${Page} title=${title} badge=${html`<${TaskState} state=${task.state} />`} actions=${html`<${TaskButtons} task=${task} />`}
      about=${html`${task.kind}, by ${task.actor}. <${Link} to="/tasks">All tasks<//>`}>
    ${found.error && html`<${Failure} error=${found.error} />`}
    ${task.waits_for && html`<${Notice} tone="warn" title="It waits"><p>for ${task.waits_for}</p><//>`}
    <${Figures} task=${task} />
    ${isOpen(task) && html`<${Speed} found=${found} />`}
    <${Facts} task=${task} />
    ${isOpen(task) && html`<${Card} title="Its partitions"><${Moves} task=${id} /><//>`}
  <//>`;
}

const Figures = ({ task }) => html`<dl class="stats">
  <${Stat} name="Partitions" more=${`${count(task.partitions.moving)} moving, ${count(task.partitions.waiting)} waiting`}><${Progress} task=${task} /><//>
  <${Stat} name="Bytes left" more=${task.bytes_total > 0 && `of ${bytes(task.bytes_total)} that are moving`}>${bytes(task.bytes_left)}<//>
  <${Stat} name="Rate" more="mean of ten seconds">${rate(task.rate_bytes_per_s)}<//>
  <${Stat} name="Time left">${timeLeft(task)}<//>
  <${Stat} name="Throttle" more=${task.bound_by && `the limit is ${BOUNDS[task.bound_by]}`}>${task.throttle_bytes_per_s == null ? "none" : rate(task.throttle_bytes_per_s)}<//>
  ${task.partitions.failed > 0 && html`<${Stat} name="Not moved" tone="warn" more="cancelled, retargeted or deleted">${count(task.partitions.failed)}<//>`}
</dl>`;

/** The rate since the page was opened. */
function Speed({ found }) {
  const kept = useRef({ at: 0, times: [], values: [] });
  if (kept.current.at !== found.at) {
    const { times, values } = kept.current;
    kept.current = { at: found.at, times: [...times, found.at / 1000].slice(-720), values: [...values, found.data.rate_bytes_per_s].slice(-720) };
  }
  const { times, values } = kept.current;
  return html`<${Card} title="Rate over time"><${Chart} title="Bytes copied per second" times=${times} format=${rate} height=${140} series=${[{ label: "Rate", values, colour: "--chart-1" }]} /><//>`;
}

const Facts = ({ task }) => html`<${Card} title="About it"><dl class="pairs">
  <dt>Started</dt><dd>${time(task.created_at_ms)}</dd>
  ${task.finished_at_ms && html`<dt>Ended</dt><dd>${time(task.finished_at_ms)}</dd>`}
  ${task.reason && html`<dt>Reason</dt><dd>${task.reason}</dd>`}
  <dt>Steps</dt><dd>${task.algorithm}</dd>
  <dt>Started by</dt><dd>${task.actor}${task.is_auto_generated ? " (a controller, by itself)" : ""}</dd>
  <dt>Cause</dt><dd><${Link} to=${`/history?cause=${encodeURIComponent(task.cause)}`}>${task.cause}<//></dd>
  ${Object.entries(task.details ?? {}).map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd>${typeof value === "object" ? JSON.stringify(value) : String(value)}</dd>`)}
</dl><//>`;
