// A job's log: read while somebody looks at it, and searched.

import { byId } from "./core.js";
import { follow } from "./stream.js";

let lines = [];
let asked = false;

const wanted = () => byId("log-search").value.trim().toLowerCase();
const isFound = (line) => line.toLowerCase().includes(wanted());

/** Only the lines that have what is searched for, and how many they are. */
function show() {
  const found = lines.filter(isFound);
  byId("log").textContent = found.map((line) => `${line}\n`).join("");
  count(found.length);
}

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
  asked = false;
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
  const told = (state) => {
    byId("log").dataset.state = state;
    if (state === "ended" && lines.length === 0) byId("log").textContent = "Nothing was logged.";
  };
  follow(path, (event) => take(event.data.data.line), signal, told, isOver);
}

byId("log-search").addEventListener("input", show);
