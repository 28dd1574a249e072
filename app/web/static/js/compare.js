// Several runs on the same axes: what each spends and reaches, as it comes.

import { Problem, api, byId, el, figure, later, refusal } from "./core.js";
import { History } from "./job-history.js";
import { algorithmName, cost, tag } from "./jobs-common.js";
import { linePlot } from "./plots.js";
import { FINAL, follow } from "./stream.js";

const DRAW = 500;
const MOST = 4; // colours
const MOST_PLOTS = 6;
const NAMES = { step: "step", seconds: "seconds since the start", epsilon: "epsilon spent" };
const ids = [...new Set(new URLSearchParams(location.search).getAll("id"))].filter((id) => /^[0-9a-f]{32}$/.test(id)).slice(0, MOST);
const stopping = new AbortController();

/** @type {{id: string, job: any, history: History}[]} */
const runs = [];

const nameOf = ({ id, job }) => job.labels.name || `${Object.entries(job.labels).map(([name, value]) => `${name}=${value}`).join(", ") || algorithmName(job.algorithm)} (${id.slice(-6)})`;

function row(run) {
  const { job, history } = run;
  const last = [...history.metrics].filter(([, all]) => all.length).map(([name, all]) => `${name.replaceAll("_", " ")} ${figure(all.at(-1)[1])}`);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: `/jobs/${run.id}` }, nameOf(run))),
    el("td", { "data-name": "State" }, tag(job.state)),
    el("td", { "data-name": "Steps" }, job.progress ? `${job.progress.step} of ${job.progress.steps}` : ""),
    el("td", { "data-name": "Spent" }, cost(job.progress)),
    el("td", { "data-name": "Steps a second" }, Number.isFinite(history.speed) ? figure(history.speed, 3) : ""),
    el("td", { "data-name": "Metrics" }, last.join(", ")),
  );
}

const draw = later(async () => {
  byId("runs").replaceChildren(...runs.map(row));
  byId("runs").setAttribute("aria-busy", "false");
  const place = byId("plots");
  if (place.contains(document.activeElement) || place.querySelector("details[open]")) {
    draw(); // somebody is reading it
    return;
  }
  const axis = byId("across").value;
  const made = [];
  if (axis !== "epsilon") made.push(await plot("epsilon spent", axis, (run) => run.history.progress.map(({ step, epsilon }) => [step, epsilon])));
  const metrics = [...new Set(runs.flatMap((run) => [...run.history.metrics.keys()]))];
  // A figure that each run has once is in the table.
  const curves = metrics.filter((name) => runs.some((run) => run.history.metrics.get(name)?.length > 1));
  for (const name of curves.slice(0, MOST_PLOTS)) made.push(await plot(name.replaceAll("_", " "), axis, (run) => run.history.metrics.get(name) || []));
  place.replaceChildren(...made);
  place.setAttribute("aria-busy", "false");
}, DRAW);

function plot(name, axis, pointsOf) {
  const series = runs.map((run) => ({ name: nameOf(run), points: pointsOf(run).map(([step, value]) => [run.history.along(step, axis), value]) }));
  return linePlot({ title: `${name[0].toUpperCase()}${name.slice(1)}`, about: `Of each run, by ${NAMES[axis]}.`, dots: true, x: { label: NAMES[axis] }, y: { label: name }, series, file: `runs-${name.replaceAll(" ", "-")}` });
}

async function start(id) {
  const base = `/v1/jobs/${id}`;
  const run = { id, job: await api(base), history: new History() };
  runs.push(run);
  const isOver = async () => {
    run.job = await api(base);
    return FINAL.includes(run.job.state);
  };
  const take = (event) => {
    run.history.take(event);
    if (event.type === "progress") run.job.progress = event.data.data;
    if (event.type === "state") isOver().then(draw, () => {});
    draw();
  };
  follow(`${base}/events`, take, stopping.signal, () => draw(), isOver);
}

async function startAll() {
  byId("none").hidden = ids.length > 1;
  runs.length = 0;
  try {
    for (const id of ids) await start(id);
    byId("trouble").replaceChildren();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
  draw();
}

byId("across").addEventListener("change", draw);
document.addEventListener("zetadp-key", startAll);
document.addEventListener("zetadp-theme", draw);
startAll();
