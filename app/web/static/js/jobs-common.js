// What a job's list and its page say alike.

import { bound, el } from "./core.js";

const COLOURS = { succeeded: "good", failed: "bad", cancelled: "warn", paused: "warn" };

export function tag(state) {
  return el("span", { class: `tag ${COLOURS[state] || "soft"}` }, state);
}

export function cost(progress) {
  if (!progress) return "";
  return progress.epsilon === "Infinity" ? "no guarantee" : `epsilon ${bound(progress.epsilon)} at delta ${progress.delta}`;
}
