// What components are made of, in one import: Preact with its hooks, htm's `html`, signals.
//
//   import { html, useState, signal } from "../lib/dom.js";

export { html, render } from "../vendor/htm-preact.js";
export { useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";
