// The lag of consumer groups: of those in view, read in turns; and of one group over time.

import { get } from "../lib/api.js";
import { useEffect, useRef, useState } from "../lib/dom.js";
import { may } from "./me.js";

const EVERY_MS = 5_000;
const AT_A_TIME = 6;
const KEPT = 720;
/** A chart with more lines is not readable. */
const MOST_TOPICS = 3;
const COLOURS = ["--chart-2", "--chart-3", "--chart-4"];

/** The path of a group, or of what is below it. */
export const groupPath = (group, below = "") => `/v1/groups/${encodeURIComponent(group)}${below}`;

/**
 * The total lag of groups, read again and again while a component shows it.
 * @param {string[]} names
 * @returns {Map<string, number>} by group, without those that did not answer
 */
export function useGroupLags(names) {
  const [lags, setLags] = useState(new Map());
  useEffect(() => {
    if (!names.length || may("read_lag")) return undefined;
    let timer = 0;
    let over = false;
    const read = async () => {
      for (let i = 0; i < names.length && !over && !document.hidden; i += AT_A_TIME) {
        const found = await totals(names.slice(i, i + AT_A_TIME));
        if (!over) setLags((before) => merged(before, found));
      }
      if (!over) timer = setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [names.join("\n")]);
  return lags;
}

async function totals(names) {
  const answers = await Promise.allSettled(names.map((name) => get(groupPath(name, "/lag"))));
  return names.flatMap((name, i) => (answers[i].status === "fulfilled" ? [[name, answers[i].value.body.total]] : []));
}

const merged = (before, found) => (found.every(([name, total]) => before.get(name) === total) ? before : new Map([...before, ...found]));

/**
 * The lag of a group since the page was opened: the total, and that of the topics with the most.
 * @param {import("./polled.js").Polled} lag of the group's `/lag`
 * @returns {{times: number[], series: {label: string, values: (number | null)[], colour: string}[]}}
 */
export function useLagOverTime(lag) {
  const kept = useRef({ at: 0, samples: [], shown: { times: [], series: [] } });
  if (lag.data && kept.current.at !== lag.at) {
    const samples = [...kept.current.samples, sampleOf(lag)].slice(-KEPT);
    kept.current = { at: lag.at, samples, shown: shownOf(samples) };
  }
  return kept.current.shown;
}

function sampleOf({ at, data }) {
  const topics = new Map();
  for (const row of data.partitions) topics.set(row.topic, (topics.get(row.topic) ?? 0) + (row.lag ?? 0));
  return { time: at / 1000, total: data.total, topics };
}

function shownOf(samples) {
  const latest = [...samples.at(-1).topics].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const names = latest.length > 1 ? latest.slice(0, MOST_TOPICS).map(([name]) => name).sort() : [];
  return {
    times: samples.map((one) => one.time),
    series: [
      { label: "All topics", values: samples.map((one) => one.total), colour: "--chart-1" },
      ...names.map((name, i) => ({ label: name, values: samples.map((one) => one.topics.get(name) ?? null), colour: COLOURS[i] })),
    ],
  };
}
