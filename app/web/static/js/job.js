// One job: its progress, the epsilon it has spent, its figures, log and files, as they come.

import { Problem, announce, api, byId, download, el, figure, moment, number, paced, refusal, request } from "./core.js";
import { forget, note } from "./job-attempts.js";
import { editLabels, showLabels } from "./job-labels.js";
import { History } from "./job-history.js";
import { forgetLog, readLog } from "./job-log.js";
import { forgetSites, showSites, sitesLine } from "./job-sites.js";
import { findOthers, isWanted, offerViews } from "./job-view.js";
import { algorithmName, cost, privacyOf, tag } from "./jobs-common.js";
import { explain } from "./meaning.js";
import { linePlot } from "./plots.js";
import { FINAL, follow } from "./stream.js";
import { watchWorkers } from "./workers.js";
import { offerZoom, zoomed } from "./zoom.js";

const id = byId("job").dataset.job;
const base = `/v1/jobs/${id}`;
const DRAW = 700;
const MOST_POINTS = 2000;
const ACTIONS = { preparing: ["pause", "cancel"], queued: ["pause", "cancel"], running: ["pause", "cancel"], pausing: ["resume", "cancel"], paused: ["resume", "cancel"], failed: ["retry"], cancelled: ["retry"] };
/** What a state means and what can be done about it. */
const WORDS = {
  preparing: "A worker finds out how large its data set is and how much noise it needs. Then it waits for its turn. Nothing is released or charged yet.",
  queued: "It is waiting for a worker. If you pause it, it waits until you resume it; if you cancel it, it never starts.",
  running: "You can pause it at a checkpoint or cancel it. Either way, what it has released still counts.",
  pausing: "It stops at its next checkpoint and frees its worker.",
  cancelling: "It is being stopped. What it has released still counts.",
  paused: "Nothing happens until you resume it; then it continues from its checkpoint.",
  succeeded: "The job is done. You can still change its labels.",
  failed: "You can run it again, as a new attempt from its last checkpoint. Its budget, if any, is charged again.",
  cancelled: "You can run it again, as a new attempt from its last checkpoint. Its budget, if any, is charged again.",
};
/** Of a job that failed before any worker started it: it has no checkpoint, and no budget was charged. */
const NEVER_STARTED = "It was never started, and nothing was charged. You can run it again, for example once its data set is in place.";

let lines = new AbortController();
let job = null;
let offered = null;
let said = null;
let course = new History();

function thinned(series) {
  const every = Math.ceil(series.length / MOST_POINTS);
  return every === 1 ? series : series.filter((_, place) => place % every === 0 || place === series.length - 1);
}

const draw = paced(async () => {
  const place = byId("plots");
  if (place.contains(document.activeElement) || place.querySelector("details[open], svg:hover")) {
    draw(); // somebody is reading it
    return;
  }
  try {
    const made = [];
    if (course.spent.length > 1) made.push(await spent());
    if (course.metrics.size) made.push([...course.metrics.values()].some((all) => all.length > 1) ? await curves() : last());
    place.replaceChildren(...made);
    byId("views").hidden = course.spent.length < 2 && course.metrics.size === 0;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(refusal(error));
  }
}, DRAW);

function spent() {
  // It jumps at each report to what was spent by then: a chord would lie below it.
  const series = [{ name: "spent", curve: "step-before", points: thinned(course.spent) }];
  if (target()) series.push({ name: "target", curve: "linear", points: [[0, target()], [job.progress.steps, target()]] });
  return linePlot({ title: "Epsilon spent", about: "An upper bound after each reported step; between two of them, the later one's.", x: { label: "step" }, y: { label: "epsilon" }, series, part: zoomed(), file: `${id}-epsilon` });
}

function whose() {
  return job?.metrics?.held_out === "private" ? "With noise, paid for by the budget." : "On records declared public.";
}

function last() {
  const pairs = [...course.metrics].flatMap(([name, all]) => [el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, figure(all.at(-1)[1]))]);
  return el("figure", {}, el("h3", {}, "Metrics on held-out records"), el("dl", { class: "words" }, ...pairs), el("figcaption", {}, whose()));
}

function curves() {
  const series = [...course.metrics].slice(0, 4).map(([name, all]) => ({ name: name.replaceAll("_", " "), points: thinned(all) }));
  return linePlot({ title: "Metrics on held-out records", about: whose(), x: { label: "step" }, y: { label: "metric" }, series, part: zoomed(), file: `${id}-curves` });
}

function head() {
  byId("title").textContent = algorithmName(job.algorithm || job.calculation);
  byId("state").replaceChildren(tag(job));
  const told = [`created ${moment(job.created)}`, job.started ? `started ${moment(job.started)}` : null, job.finished ? `ended ${moment(job.finished)}` : null, `attempt ${job.attempt}`];
  byId("times").textContent = told.filter(Boolean).join("; ");
  byId("failure").replaceChildren(...(job.failure ? [el("p", { class: "notice bad" }, job.failure)] : []));
  done();
  byId("launch").textContent = launched();
  showLabels(job.labels);
  // Redrawn only when they change: a button mustn't lose the focus, or a click, to an event that comes meanwhile.
  const wanted = `${job.state} ${job.waits_for} ${job.certificate}`;
  if (wanted === offered) return;
  offered = wanted;
  byId("what").replaceChildren(...what());
  const actions = (job.waits_for ? ACTIONS.queued : ACTIONS[job.state]) || [];
  // Nor to a state in which the same can be done.
  if (String([...byId("actions").children].map((one) => one.getAttribute("name"))) !== String(actions)) byId("actions").replaceChildren(...actions.map(button));
  byId("certificate").replaceChildren(...(job.certificate ? [certificate()] : []));
  belongings();
  byId("spec").textContent = JSON.stringify(job.spec ?? job.result, null, 2);
  if (said !== job.state) announce(`The job is ${job.state}`);
  said = job.state;
}

/** What its state means and what can be done about it. */
function what() {
  if (!job.waits_for) return [(job.state === "failed" && job.attempt === 0 ? NEVER_STARTED : WORDS[job.state]) || ""];
  const where = el("a", { href: `/ledgers/${job.charge.ledger}` }, "its budget's page");
  return ["It waits for approval by a second key: a key other than the one that sent it approves reservation ", el("span", { class: "mono" }, job.charge.reservation.slice(0, 12)), " on ", where, ". Then it goes on by itself. If you pause it, it stays paused after that; if you cancel it, it never starts."];
}

function done() {
  if (!job.progress) return;
  byId("progress").max = job.progress.steps;
  byId("progress").value = job.progress.step;
  byId("steps").textContent = `Step ${job.progress.step} of ${job.progress.steps}: ${cost(job.progress)}${target() ? `; the target is epsilon ${target()}.` : "."}${pace()}`;
  const minded = Number.isFinite(number(job.progress.epsilon)) ? job.caveats : [];
  byId("caveats").replaceChildren(...minded.map((line) => el("li", {}, `${line}.`)));
  byId("meaning-part").hidden = !privacyOf(job)?.adjacency || !Number.isFinite(number(job.progress.epsilon));
  means();
}

/** The epsilon, delta and number of units whose meaning stands there, to every digit. */
let meant = "";

/** What the spent epsilon means, while somebody reads it; it names its epsilon, which may have grown since. */
const means = paced(async () => {
  if (!job?.progress || byId("meaning-part").hidden || !byId("meaning-part").open) return;
  const { epsilon, delta } = job.progress;
  const now = `${epsilon} ${delta} ${job.units}`;
  if (meant === now) return;
  meant = now;
  byId("meaning-of").textContent = cost(job.progress);
  try {
    await explain(byId("meaning"), { epsilon, delta, adjacency: privacyOf(job).adjacency, unit: privacyOf(job).unit, units: job.units, signal: lines.signal });
  } catch (error) {
    byId("meaning-of").textContent = meant = "";
    if (!(error instanceof Problem) && error.name !== "AbortError") throw error;
  }
}, DRAW);

/** How fast it is and how long it will take at that, while it runs. */
function pace() {
  const { speed } = course;
  if (job.state !== "running" || !Number.isFinite(speed)) return "";
  const left = (job.progress.steps - job.progress.step) / speed;
  if (left <= 0) return " Its certificate is being made.";
  return ` ${figure(speed, 3)} steps a second, about ${left < 120 ? `${Math.ceil(left)} s` : `${Math.ceil(left / 60)} min`} left.`;
}

/** What it asked of machines, and the cluster's last word on its worker. */
function launched() {
  const { gpus, gpu_kind: kind, memory_bytes: bytes, cpus, seconds, machines } = job.resources || {};
  const asked = [
    gpus ? `${gpus} accelerator${gpus > 1 ? "s" : ""}${kind ? ` (${kind})` : ""}` : kind ? `an accelerator of the kind ${kind}` : null,
    bytes ? `${figure(bytes / 2 ** 30)} GiB of memory` : null,
    cpus ? `${cpus} cores` : null,
    machines > 1 ? `${machines} machines` : null,
    seconds ? `${figure(seconds / 3600)} hours at a time` : null,
  ].filter(Boolean);
  const said = job.launch ? `Its worker in the cluster: ${job.launch.state}${job.launch.reason ? ` (${job.launch.reason})` : ""}.` : "";
  return [asked.length ? `It asks for ${asked.join(", ")}.` : "", said].filter(Boolean).join(" ");
}

/** The epsilon that the noise was calibrated to, or null where none was named or nothing is guaranteed. */
function target() {
  const wanted = privacyOf(job)?.epsilon;
  return wanted && Number.isFinite(number(job.progress?.epsilon)) ? wanted : null;
}

function belongings() {
  const limits = [job.priority ? `Priority ${job.priority}. ` : "", job.timeout_seconds ? `Time limit: ${figure(job.timeout_seconds / 3600)} hours of work. ` : ""];
  byId("belongs").replaceChildren(...limits, ...(job.charge ? ["Charged to ", el("a", { href: `/ledgers/${job.charge.ledger}` }, "its budget"), "."] : []));
}

function certificate() {
  return el(
    "p",
    {},
    "Certificate: ",
    ...["html", "pdf", "dsse", "jws"].flatMap((form) => [el("button", { type: "button", class: "quiet", on: { click: () => fetched(form) } }, { html: "read", pdf: "PDF", dsse: "signed file", jws: "JWS" }[form]), " "]),
    el("a", { href: `/certificates#${job.certificate}` }, "check it"),
    el("span", { class: "soft" }, ". Id: ", el("span", { class: "mono" }, job.certificate)),
  );
}

async function fetched(form) {
  try {
    const answer = await request(`/v1/certificates/${job.certificate}?form=${form}`);
    const endings = { html: "html", pdf: "pdf", dsse: "json", jws: "jws" };
    download(`certificate-${id.slice(0, 12)}.${endings[form]}`, await answer.blob());
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
}

function button(action) {
  const act = async () => {
    if (action === "cancel" && !window.confirm("Cancel this job? What it has released still counts.")) return;
    try {
      job = await api(`${base}/${action}`, { method: "POST" });
      head();
      byId("trouble").replaceChildren();
      if (action === "retry") start();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      byId("trouble").replaceChildren(refusal(error));
    }
  };
  return el("button", { type: "button", name: action, class: action === "cancel" ? "danger" : "quiet", on: { click: act } }, { cancel: "Cancel", pause: "Pause", resume: "Resume", retry: "Run again" }[action]);
}

function take(event) {
  const told = event.data.data;
  byId("events").dataset.count = String(Number(byId("events").dataset.count) + 1);
  course.take(event);
  switch (event.type) {
    case "progress":
      job.progress = { step: told.step, steps: told.steps, epsilon: told.epsilon, delta: told.delta };
      done();
      break;
    case "metrics":
      job.metrics = told;
      break;
    case "sites":
      showSites(told);
      break;
    case "state":
      refresh();
      break;
    default:
  }
  note(event.type, event.data);
  byId("events").prepend(el("tr", { "data-kind": event.type, hidden: !isWanted(event.type) }, el("th", { scope: "row", class: "number" }, String(event.data.number)), el("td", { "data-name": "Time" }, moment(event.data.time)), el("td", { "data-name": "Event" }, event.type), el("td", { "data-name": "Details" }, summary(event.type, told))));
  while (byId("events").rows.length > 500) byId("events").lastElementChild.remove();
  draw();
}

function summary(type, told) {
  switch (type) {
    case "progress":
      return `step ${told.step} of ${told.steps}, ${cost(told)}`;
    case "metrics":
      return Object.entries(told.metrics).map(([name, value]) => `${name.replaceAll("_", " ")} ${figure(value)}`).join(", ");
    case "state":
      return told.reason ? `${told.state}: ${told.reason}` : told.state;
    case "stage":
      return told.doing;
    case "sites":
      return sitesLine(told);
    case "checkpoint":
      return `at step ${told.step}`;
    case "artifacts":
      return told.artifacts.map((one) => one.name).join(", ");
    case "failed":
      return told.reason;
    case "stopped":
      return `after step ${told.step}`;
    default:
      return told.resumed_from_step ? `from step ${told.resumed_from_step}` : "";
  }
}

function line(state, problem) {
  const words = {
    open: "Following live.",
    waiting: "The service doesn't answer at the moment; it may be restarting. What you see is from before. Trying again; nothing will be missing.",
    ended: "This is the whole history.",
  };
  byId("line").textContent = problem && state === "ended" ? problem.message : words[state];
  byId("line").dataset.state = state;
  if (problem?.status === 404) gone();
}

async function files() {
  const list = await api(`${base}/artifacts`);
  byId("no-files").hidden = list.artifacts.length > 0;
  byId("files-part").hidden = list.artifacts.length === 0;
  byId("files").replaceChildren(
    ...list.artifacts.map((one) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("button", { type: "button", class: "quiet", on: { click: async () => download(one.name, await (await request(`${base}/artifacts/${encodeURIComponent(one.name)}`)).blob()) } }, one.name)),
        el("td", { class: "number", "data-name": "Bytes" }, one.bytes.toLocaleString("en")),
        el("td", { class: "mono", "data-name": "SHA-256" }, one.sha256),
      ),
    ),
  );
}

function gone() {
  offered = null;
  byId("title").textContent = "There is no such job";
  for (const name of ["labels-form", "attempts-part", "meaning-part", "views"]) byId(name).hidden = true;
  for (const name of ["actions", "what", "certificate", "state", "plots", "belongs", "labels-other", "meaning", "meaning-of"]) byId(name).replaceChildren();
  meant = "";
  byId("times").textContent = "";
  byId("trouble").replaceChildren(
    el("p", { class: "notice bad", role: "alert" }, "There is no job with this id that your key may see. It may belong to another tenant or another service. ", el("a", { href: "/jobs" }, "See your jobs.")),
  );
}

async function refresh() {
  try {
    job = await api(base);
    head();
    if (job.state === "succeeded" && !job.calculation) await files();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 404) gone();
    else if (error.status !== 0 || !job) byId("trouble").replaceChildren(refusal(error));
  }
}

async function isOver() {
  job = await api(base);
  head();
  return FINAL.includes(job.state);
}

function followLog() {
  if (job) readLog(`${base}/logs`, lines.signal, isOver);
}

async function start() {
  lines.abort();
  lines = new AbortController();
  const { signal } = lines;
  job = null;
  offered = null;
  course = new History();
  forget();
  forgetSites();
  for (const name of ["events", "meaning", "meaning-of"]) byId(name).replaceChildren();
  meant = "";
  byId("events").dataset.count = "0";
  forgetLog();
  byId("trouble").replaceChildren();
  await refresh();
  if (!job || signal.aborted) return;
  follow(`${base}/events`, take, signal, line, isOver);
  followLog();
  findOthers(job);
}

editLabels(base, (changed) => {
  job = changed;
  head();
});
offerViews(id, () => course);
offerZoom(draw);
byId("log-part").addEventListener("toggle", followLog);
byId("meaning-part").addEventListener("toggle", means);
document.addEventListener("zetadp-key", start);
document.addEventListener("zetadp-theme", draw);
start().then(() => watchWorkers(() => job !== null && !FINAL.includes(job.state)));
