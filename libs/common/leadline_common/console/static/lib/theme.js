// The theme: "light", "dark", or "" for the choice of the system. Kept in this browser.

import { signal } from "../vendor/signals-core.js";

const KEY = "leadline.theme";
const THEMES = ["", "light", "dark"];

const kept = () => {
  try {
    const found = localStorage.getItem(KEY) ?? "";
    return THEMES.includes(found) ? found : "";
  } catch {
    return ""; // A browser that keeps nothing: the system decides.
  }
};

export const theme = signal(kept());

/** Choose a theme, at once and for the next visits. */
export function choose(next) {
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It holds for this visit only.
  }
}

/** Whether colours are dark now, by choice or by the system. */
export const isDark = () => (theme.value ? theme.value === "dark" : systemDark.matches);

/** Call `changed` when the colours change, by choice or by the system; returns how to stop. */
export function onColours(changed) {
  const stop = theme.subscribe(() => changed());
  systemDark.addEventListener("change", changed);
  return () => {
    stop();
    systemDark.removeEventListener("change", changed);
  };
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");

theme.subscribe((value) => {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
});
