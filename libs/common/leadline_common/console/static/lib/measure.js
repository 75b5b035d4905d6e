// How long the script takes for each update of the page: for tests, and for whoever looks for a
// slow component (`performance.getEntriesByName("leadline-update")`).

const KEPT = 200;

/** Read by tests. The first data of a page is no update: it comes with the page itself. */
const figures = { loadMs: 0, updates: 0, longestUpdateMs: 0, lastUpdateMs: 0 };
window.leadline = figures;

/**
 * Measure one update: `work` changes signals, and the components that read them are drawn before
 * the measure ends. `before` is the time (ms) that was spent on it earlier.
 */
export function measured(work, before = 0) {
  const start = performance.now();
  work();
  // Components are drawn in a microtask that was queued before this one.
  queueMicrotask(() => queueMicrotask(() => {
    const took = performance.now() - start + before;
    if (!figures.loadMs) {
      figures.loadMs = took;
      return;
    }
    performance.measure("leadline-update", { start, duration: took });
    if (performance.getEntriesByName("leadline-update").length > KEPT) performance.clearMeasures("leadline-update");
    figures.updates += 1;
    figures.lastUpdateMs = took;
    figures.longestUpdateMs = Math.max(figures.longestUpdateMs, took);
  }));
}
