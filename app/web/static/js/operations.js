// The operators' page: a verdict first, then figures of the queue, storage, certificates and webhooks, checks, and workers.

import { Problem, api, bound, byId, el, figure, moment, refusal, request } from "./core.js";

const EVERY = 5000;
const SCARCE = 0.1; // of the disk

/** Prometheus's text as [name, labels, value]. */
function samples(text) {
  return [...text.matchAll(/^([a-z_]+)(?:\{([^}]*)\})? (\S+)$/gm)].map(([, name, labels, value]) => [name, labels || "", Number(value)]);
}

function sum(found, name, label = "") {
  const all = found.filter(([one, labels]) => one === name && labels.includes(label)).map(([, , value]) => value);
  return all.length ? all.reduce((total, value) => total + value, 0) : NaN;
}

function duration(seconds) {
  if (Number.isNaN(seconds)) return "an unknown time";
  if (seconds < 120) return `${figure(seconds, 2)} s`;
  if (seconds >= 2 * 86_400) return `${Math.floor(seconds / 86_400)} days`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${figure(seconds / 3600, 3)} h`;
}

const count = (value) => (Number.isNaN(value) ? "unknown" : value.toLocaleString("en"));
const gib = (bytes) => (Number.isNaN(bytes) ? "unknown" : `${bound(bytes / 2 ** 30, { digits: 3, down: true })} GiB`);

const age = (seconds) => Math.max(0, Date.now() / 1000 - seconds);

/** What witnesses say of the log's head. */
function witnessed(of) {
  const [asked, signed, size] = [of("log_witnesses"), of("log_head_witnesses"), of("log_head_entries")];
  if (!(asked > 0)) return Number.isNaN(asked) ? "witnesses unknown" : "no witnesses are configured";
  return size > 0 ? `${signed} of ${asked} witnesses signed its head of ${count(size)} entries, ${duration(age(of("log_head_timestamp_seconds")))} ago` : `no head was signed by any of ${asked} witnesses yet`;
}

/** Each card: its name, its figure, what else there is to say, and whether it needs attention. */
function cards(found) {
  const of = (name, label) => sum(found, `zetadp_${name}`, label);
  const [free, all] = [of("disk_free_bytes"), of("disk_bytes")];
  const [backup, asked] = [of("backup_timestamp_seconds"), of("log_witnesses")];
  return [
    ["Waiting jobs", count(of("queue_depth")), of("queue_depth") > 0 ? `the oldest for ${duration(of("queue_oldest_seconds"))}` : "none is waiting", false],
    ["Running jobs", count(of("jobs_in_hand")), `${count(of("unfinished_worker_deaths"))} worker deaths in unfinished jobs`, !(of("unfinished_worker_deaths") === 0)],
    ["Free disk", gib(free), `of ${gib(all)}`, !(free >= SCARCE * all)],
    ["Certificates", count(of("certificates")), `${count(of("certificates_refused"))} refused`, false],
    ["Budgets", count(of("ledgers")), `${count(of("reservations_open"))} open reservations`, false],
    ["Last backup", backup === 0 ? "none" : Number.isNaN(backup) ? "unknown" : `${duration(age(backup))} ago`, backup > 0 ? `as of ${moment(1000 * backup)}; only restoring it shows that it works` : backup === 0 ? "none was recorded; zetadp backup makes one" : "", false],
    ["Log entries", count(of("log_entries")), witnessed(of), asked > 0 && !(of("log_head_witnesses") >= asked)],
    ["Webhooks waiting", count(of("webhooks_waiting")), `${count(of("webhooks_failing"))} failing`, !(of("webhooks_failing") === 0)],
  ];
}

/** Shows the cards; returns the names of those that need attention. */
function showFigures(found) {
  const all = cards(found);
  byId("figures").replaceChildren(
    ...all.map(([name, value, more, isBad]) => el("li", { class: "card" }, el("h2", {}, name), el("p", { class: "figure" }, value), el("p", { class: "soft" }, isBad ? el("span", { class: "tag warn" }, "check") : null, ` ${more}`))),
  );
  byId("figures").setAttribute("aria-busy", "false");
  return all.filter(([, , , isBad]) => isBad).map(([name]) => name.toLowerCase());
}

/** Shows the checks; returns the names of those that failed. */
function showChecks({ checks }) {
  byId("checks").replaceChildren(
    ...checks.map((one) =>
      el("tr", {}, el("th", { scope: "row" }, one.name.replaceAll("_", " ")), el("td", { "data-name": "Outcome" }, el("span", { class: `tag ${one.ok ? "good" : one.needed ? "bad" : "warn"}` }, one.ok ? "passes" : one.needed ? "fails" : "missing")), el("td", { "data-name": "Detail" }, one.detail || "")),
    ),
  );
  return checks.filter((one) => !one.ok).map((one) => one.name.replaceAll("_", " "));
}

/** Shows the workers; returns whether any was lost. */
function showWorkers({ workers }) {
  byId("no-workers").hidden = workers.length > 0;
  byId("workers").replaceChildren(
    ...workers.map((one) => {
      const state = !one.alive ? "lost" : one.is_busy ? "busy" : "idle";
      const job = one.job ? el("a", { href: `/jobs/${one.job}` }, one.job.slice(0, 12)) : null;
      return el("tr", {}, el("th", { scope: "row" }, one.id), el("td", { "data-name": "Runs on" }, one.hardware), el("td", { "data-name": "State" }, el("span", { class: `tag ${one.alive ? "good" : "bad"}` }, state), " ", job), el("td", { "data-name": "Last heard" }, moment(one.renewed)));
    }),
  );
  return workers.some((one) => !one.alive) ? ["lost workers"] : [];
}

/** The answer of a check even where it is a refusal: a service that isn't ready says why with status 503. */
async function readiness() {
  const answer = await fetch("/readyz");
  return answer.json();
}

let timer;
let read = null; // when what is shown was read
let turn = 0; // of what was looked at: an earlier answer that comes later is of another key, or of before

/** The verdict is of all that is shown below it; where a part of that can't be had, there is none. */
async function look() {
  clearTimeout(timer);
  turn += 1;
  const mine = turn;
  try {
    const [ready, hardware, metrics, head] = [await readiness(), await api("/v1/hardware"), await (await request("/metrics")).text(), await (await request("/v1/log/checkpoint")).text()];
    if (mine !== turn) return;
    byId("read").hidden = false;
    byId("checkpoint").textContent = head;
    const wrong = [...showChecks(ready), ...showWorkers(hardware), ...showFigures(samples(metrics))];
    read = new Date();
    byId("verdict").textContent = wrong.length ? `Needs attention: ${wrong.join(", ")}.` : "All checks pass, and no figure needs attention.";
    byId("trouble").replaceChildren();
  } catch (error) {
    if (mine !== turn) return;
    byId("verdict").textContent = "Not everything could be read.";
    // What stands between may answer for the service, with anything.
    if (!(error instanceof Problem) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
    const why = error instanceof Problem ? refusal(error) : el("p", { class: "notice" }, "The service doesn't answer.");
    if (error instanceof Problem && [401, 403].includes(error.status)) {
      byId("read").hidden = true; // of another key, or of nobody's
      byId("trouble").replaceChildren(why);
      return;
    }
    const earlier = el("p", { class: "notice" }, `What is shown below was read on ${moment(read)} and may have changed since.`);
    byId("trouble").replaceChildren(why, ...(byId("read").hidden ? [] : [earlier]));
  }
  clearTimeout(timer);
  timer = setTimeout(look, EVERY);
}

document.addEventListener("zetadp-key", () => {
  byId("read").hidden = true;
  byId("verdict").textContent = "Checking…";
  look();
});
look();
