// A job's log: read while somebody looks at it, and searched.

import { announce, byId, paced } from "./core.js";
import { follow } from "./stream.js";

const SAY = 1000; // milliseconds: how often a screen reader hears how many lines there are
let lines = [];
let asked = false;
let isEmpty = false; // the whole log was read, and there is nothing in it

const wanted = () => byId("log-search").value.trim().toLowerCase();
const isFound = (line) => line.toLowerCase().includes(wanted());

/** Only the lines that have what is searched for, and how many they are. */
function show() {
  const found = lines.filter(isFound);
  byId("log").textContent = isEmpty ? "No log lines. If the job ended long ago, they may have been deleted." : found.map((line) => `${line}\n`).join("");
  count(found.length);
}

/** What a search found, once it was typed: lines that come meanwhile are counted and not read out. */
const sayFound = paced(() => {
  if (byId("log-count").textContent) announce(byId("log-count").textContent);
}, SAY);

function count(found) {
  byId("log-count").textContent = wanted() === "" || lines.length === 0 ? "" : `${found.toLocaleString("en")} of ${lines.length.toLocaleString("en")} lines`;
  byId("log-count").dataset.found = String(found);
}

function take(line) {
  const log = byId("log");
  lines.push(line);
  const found = Number(byId("log-count").dataset.found);
  if (isFound(line)) log.append(`${line}\n`);
  count(found + (isFound(line) ? 1 : 0));
  if (wanted() === "") log.scrollTop = log.scrollHeight;
}

/** Nothing was read yet. */
export function forgetLog() {
  lines = [];
  asked = isEmpty = false;
  delete byId("log").dataset.state;
  show();
}

/**
 * Reads the log of a job from its beginning, once, and only while it is unfolded: a browser opens few lines to one service, and each page of a
 * job holds one already.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {() => Promise<boolean>} isOver
 */
export function readLog(path, signal, isOver) {
  if (asked || !byId("log-part").open) return;
  asked = true;
  const told = (state, problem) => {
    byId("log").dataset.state = state;
    if (state !== "ended") return;
    // A line that was refused has told nothing of what there is.
    isEmpty = !problem && lines.length === 0;
    if (problem && lines.length === 0) byId("log").textContent = problem.message;
    else if (isEmpty) show();
  };
  follow(path, (event) => take(event.data.data.line), signal, told, isOver);
}

byId("log-search").addEventListener("input", () => {
  show();
  sayFound();
});
