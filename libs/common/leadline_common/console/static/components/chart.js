// Values over time, drawn by uPlot in the colours of the theme. The legend is text, with the last
// values, and is what a reader of the screen gets.
//
//   html`<${Chart} title="Rates" times=${seconds} format=${rate}
//     series=${[{ label: "Produced", values, colour: "--chart-1" }]} />`
//
// `times` are Unix seconds; all `values` are as long; null is a gap.

import { html, useEffect, useRef } from "../lib/dom.js";
import { time } from "../lib/format.js";
import { onColours } from "../lib/theme.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 190;
/** The shortest time that is shown, in seconds. */
const LEAST_S = 120;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Data over at least the shortest time that is shown: begin with a gap if there is less. */
function padded([times, ...values]) {
  const first = times.at(-1) - LEAST_S;
  return times.length && times[0] > first ? [[first, ...times], ...values.map((one) => [null, ...one])] : [times, ...values];
}

/** The colour that a custom property has in the theme of the moment, as a canvas takes it. */
function resolved(element, name) {
  element.style.color = `var(${name})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return found || colour(name);
}

/**
 * @param {{title: string, times: number[], series: {label: string, values: (number | null)[],
 *   colour: string}[], format?: (value: number) => string, height?: number}} props
 */
export function Chart({ title, times, series, format = String, height = HEIGHT }) {
  const box = useRef(null);
  const plot = useRef(null);
  const data = padded([times, ...series.map((one) => one.values)]);
  const latest = useRef(data);
  latest.current = data;
  const shape = series.map((one) => one.label + one.colour).join();
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(box.current, series, format, height), latest.current, box.current);
    };
    const resize = new ResizeObserver(([entry]) => plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height }));
    const stop = onColours(draw);
    resize.observe(box.current);
    return () => {
      stop();
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, height]);
  useEffect(() => plot.current?.setData(latest.current), [times]);
  return html`<div class="chart">
    <div ref=${box} role="img" aria-label=${`Chart: ${title}`}></div>
    <ul class="legend" aria-label=${`${title}, latest values`}>${series.map((one) => html`<li>
      <svg width="14" height="4" aria-hidden="true"><rect width="14" height="4" rx="2" style=${{ fill: `var(${one.colour})` }} /></svg>
      ${one.label}: ${one.values.length ? format(one.values.at(-1)) : "no value yet"}</li>`)}</ul>
  </div>`;
}

/** The times of the axis, each with seconds if they are less than a minute apart; a new day has its date. */
export function timesOf(_, seconds, axis, space, apart) {
  let before = "";
  return seconds.map((second) => {
    const [day, clock] = time(1_000 * second).split(" ");
    const shown = apart < 60 ? clock : clock.slice(0, 5);
    const more = day === before ? "" : `\n${day}`;
    before = day;
    return shown + more;
  });
}

function options(element, series, format, height) {
  const axis = { stroke: resolved(element, "--muted"), grid: { stroke: resolved(element, "--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: Math.max(50, Math.floor(element.clientWidth)),
    height,
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 10] } },
    axes: [{ ...axis, space: 80, values: timesOf }, { ...axis, size: 78, values: (_, values) => values.map((value) => format(value)) }],
    series: [{}, ...series.map((one) => ({ label: one.label, stroke: resolved(element, one.colour), width: 2, points: { show: false } }))],
  };
}
