// How often a worker took a job up, where each attempt began, its last checkpoint, and how it ended.

import { byId, el, moment } from "./core.js";

const attempts = new Map();

/** Forgets everything: the history is read from its beginning. */
export function forget() {
  attempts.clear();
  draw();
}

/** Notes one event of the history, if it says something of an attempt. */
export function note(type, record) {
  const told = record.data;
  const one = attempts.get(record.attempt) || {};
  switch (type) {
    case "started":
      attempts.set(record.attempt, { began: record.time, from: told.resumed_from_step, checkpoint: told.resumed_from_step });
      break;
    case "checkpoint":
      one.checkpoint = told.step;
      break;
    case "finished":
      one.end = "done";
      break;
    case "stopped":
      one.end = `stopped after step ${told.step}`;
      break;
    case "failed":
      one.end = `failed: ${told.reason}`;
      break;
    default:
      return;
  }
  draw();
}

function draw() {
  const rows = [...attempts].map(([number, one]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, String(number)),
      el("td", { "data-name": "Started" }, moment(one.began)),
      el("td", { "data-name": "From" }, one.from ? `the checkpoint at step ${one.from}` : "the beginning"),
      el("td", { "data-name": "Last checkpoint" }, one.checkpoint ? `step ${one.checkpoint}` : "none yet"),
      el("td", { "data-name": "End" }, one.end || (attempts.size > number ? "its worker was lost" : "")),
    ),
  );
  byId("attempts").replaceChildren(...rows);
  byId("attempts-part").hidden = rows.length === 0;
  const again = [...attempts.values()].filter((one) => one.from).length;
  byId("resumptions").textContent = again ? `It resumed from a checkpoint ${again === 1 ? "once" : `${again} times`}: lost steps after a checkpoint are done again and were never released.` : "";
}
