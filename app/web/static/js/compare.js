// Several runs on the same axes: what each spends and reaches, as it comes.

import { Problem, api, byId, el, figure, number, paced, refusal } from "./core.js";
import { History } from "./job-history.js";
import { algorithmName, cost, privacyOf, tag } from "./jobs-common.js";
import { linePlot } from "./plots.js";
import { FINAL, follow } from "./stream.js";
import { neighbourWords } from "./terms.js";
import { offerZoom, zoomed } from "./zoom.js";

const DRAW = 500;
const MOST = 4; // colours
const MOST_PLOTS = 6;
const NAMES = { step: "step", seconds: "seconds since the start", epsilon: "epsilon spent" };
const ids = [...new Set(new URLSearchParams(location.search).getAll("id"))].filter((id) => /^[0-9a-f]{32}$/.test(id)).slice(0, MOST);
let stopping = new AbortController(); // of what is followed with the key that is set

/** `broken`: why nothing more is heard of it; empty while its events come or all have come. @type {{id: string, job: any, history: History, broken: string}[]} */
const runs = [];

const nameOf = ({ id, job }) => job.labels.name || `${Object.entries(job.labels).map(([name, value]) => `${name}=${value}`).join(", ") || algorithmName(job.algorithm)} (${id.slice(-6)})`;

const UNKNOWN = "neighbours unknown";

/** What a run's epsilon hides; null where it has none. */
function hidden({ job }) {
  if (!Number.isFinite(number(job.progress?.epsilon))) return null;
  const { adjacency, unit } = privacyOf(job) || {};
  return (unit && neighbourWords(adjacency, unit)?.choice) || UNKNOWN;
}

/** What it is about: epsilons of different deltas, units or neighbours can't be compared. */
const basis = (run) => (hidden(run) ? `delta ${run.job.progress.delta}, ${hidden(run)}` : null);

/** Whether all epsilons are of the same; those without one aren't drawn. */
function isAlike() {
  const found = new Set(runs.map(basis).filter(Boolean));
  const alike = found.size < 2 && !runs.some((run) => hidden(run) === UNKNOWN);
  byId("unlike").hidden = alike;
  byId("unlike").textContent = alike ? "" : `Epsilon isn't drawn: ${found.size > 1 ? "these runs protect different things, so their epsilons can't be compared" : "it isn't known whether these runs protect the same thing"}. ${[...found].map((one) => `One: ${one}.`).join(" ")}`;
  for (const option of byId("across").options) if (option.value === "epsilon") option.disabled = !alike;
  if (!alike && byId("across").value === "epsilon") byId("across").value = "step";
  return alike;
}

function row(run) {
  const { job, history } = run;
  const last = [...history.metrics].filter(([, all]) => all.length).map(([name, all]) => `${name.replaceAll("_", " ")} ${figure(all.at(-1)[1])}`);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: `/jobs/${run.id}` }, nameOf(run))),
    el("td", { "data-name": "State" }, tag(job), run.broken ? el("p", { class: "problem" }, `As of before: ${run.broken}`) : null),
    el("td", { "data-name": "Steps" }, job.progress ? `${job.progress.step} of ${job.progress.steps}` : ""),
    el("td", { "data-name": "Spent" }, cost(job.progress), hidden(run) ? ` (${hidden(run)})` : ""),
    el("td", { "data-name": "Steps per second" }, Number.isFinite(history.speed) ? figure(history.speed, 3) : ""),
    el("td", { "data-name": "Metrics" }, last.join(", ")),
  );
}

const draw = paced(async () => {
  byId("runs").replaceChildren(...runs.map(row));
  byId("runs").setAttribute("aria-busy", "false");
  const alike = isAlike();
  const place = byId("plots");
  if (place.contains(document.activeElement) || place.querySelector("details[open], svg:hover")) {
    draw(); // somebody is reading it
    return;
  }
  const made = [];
  const axis = byId("across").value;
  // Epsilon jumps at each report to what was spent by then: a chord would lie below it.
  if (runs.length && axis !== "epsilon" && alike) made.push(await plot("epsilon spent", axis, (run) => run.history.spent, "step-before"));
  const metrics = [...new Set(runs.flatMap((run) => [...run.history.metrics.keys()]))];
  // A figure that each run has once is in the table.
  const curves = metrics.filter((name) => runs.some((run) => run.history.metrics.get(name)?.length > 1));
  for (const name of curves.slice(0, MOST_PLOTS)) made.push(await plot(name.replaceAll("_", " "), axis, (run) => run.history.metrics.get(name) || []));
  place.replaceChildren(...made);
  place.setAttribute("aria-busy", "false");
}, DRAW);

function plot(name, axis, pointsOf, curve) {
  const series = runs.map((run) => ({ name: nameOf(run), curve, points: pointsOf(run).map(([step, value, time]) => [run.history.along(step, time, axis), value]) }));
  return linePlot({ title: `${name[0].toUpperCase()}${name.slice(1)}`, about: `One line per run, by ${NAMES[axis]}.`, dots: true, part: zoomed(), x: { label: NAMES[axis] }, y: { label: name }, series, file: `runs-${name.replaceAll(" ", "-")}` });
}

async function start(id, signal) {
  const base = `/v1/jobs/${id}`;
  const run = { id, job: await api(base, { signal }), history: new History(), broken: "" };
  if (signal.aborted) return;
  runs.push(run);
  const isOver = async () => {
    run.job = await api(base, { signal });
    return FINAL.includes(run.job.state);
  };
  const take = (event) => {
    run.history.take(event);
    if (event.type === "progress") run.job.progress = event.data.data;
    if (event.type === "state") isOver().then(draw, () => {});
    draw();
  };
  const hear = (state, problem) => {
    run.broken = state === "open" || (state === "ended" && !problem) ? "" : (problem?.message ?? "the line to the service is broken; it is tried again.");
    draw();
  };
  follow(`${base}/events`, take, signal, hear, isOver);
}

async function startAll() {
  stopping.abort();
  stopping = new AbortController();
  const { signal } = stopping;
  byId("none").hidden = ids.length > 1;
  // Of another key's runs nothing stays, whoever reads it.
  runs.length = 0;
  byId("plots").replaceChildren();
  byId("trouble").replaceChildren();
  try {
    for (const id of ids) await start(id, signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
  draw();
}

byId("across").addEventListener("change", draw);
offerZoom(draw);
document.addEventListener("zetadp-key", startAll);
document.addEventListener("zetadp-theme", draw);
startAll();
