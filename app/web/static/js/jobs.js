// The list of jobs: filters, pages, and a look every few seconds.

import { Problem, api, byId, el, moment, refusal } from "./core.js";
import { algorithmName, cost, tag } from "./jobs-common.js";
import { say } from "./submit-fields.js";
import { watchWorkers } from "./workers.js";

const EVERY = 4000;
const MOST = 4; // runs whose curves can be told apart

let cursors = [null];
let timer;
let asked = 0;

/** Runs to compare, in the order in which they were chosen. */
const chosen = new Set();

let newest = [];

/** Where the runs that were chosen are compared; the two newest while none are. */
function offerComparison() {
  const ids = chosen.size > 1 ? [...chosen].slice(0, MOST) : newest;
  byId("compare").hidden = ids.length < 2;
  byId("compare").href = `/jobs/compare?${new URLSearchParams(ids.map((one) => ["id", one]))}`;
  byId("compare").textContent = chosen.size > 1 ? `Compare the ${chosen.size > MOST ? `first ${MOST}` : chosen.size} chosen` : "Compare the two newest";
}

function box(id) {
  const choose = () => {
    if (chosen.has(id)) chosen.delete(id);
    else chosen.add(id);
    offerComparison();
  };
  return el("input", { type: "checkbox", "aria-label": `Compare ${id.slice(0, 12)}`, "data-job": id, checked: chosen.has(id), on: { change: choose } });
}

function row(job) {
  const done = job.progress ? `${job.progress.step} of ${job.progress.steps}` : "";
  const labels = Object.entries(job.labels).map(([name, value]) => `${name}=${value}`).join(", ");
  return el(
    "tr",
    {},
    el("td", {}, job.algorithm ? box(job.id) : null),
    el("th", { scope: "row" }, el("a", { href: `/jobs/${job.id}` }, job.id.slice(0, 12))),
    el("td", { "data-name": "Type" }, algorithmName(job.algorithm || job.calculation)),
    el("td", { "data-name": "State" }, tag(job)),
    el("td", { "data-name": "Steps" }, done),
    el("td", { "data-name": "Spent" }, cost(job.progress)),
    el("td", { "data-name": "Labels" }, labels),
    el("td", { "data-name": "Created" }, moment(job.created)),
  );
}

async function show() {
  clearTimeout(timer);
  asked += 1;
  const mine = asked;
  const query = new URLSearchParams({ limit: "25" });
  for (const name of ["state", "algorithm", "label"]) {
    const value = byId(name).value.trim();
    if (value !== "") query.set(name, value);
  }
  const label = byId("label").value.trim();
  const fits = label === "" || (/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}=/.test(label) && label.length <= 320);
  say("label", fits ? "" : "Enter name=value, such as ward=7. The list hasn't changed.");
  if (!fits) return;
  const cursor = cursors.at(-1);
  if (cursor !== null) query.set("cursor", cursor);
  try {
    const page = await api(`/v1/jobs?${query}`);
    if (mine !== asked) return;
    const focused = byId("list").contains(document.activeElement) ? document.activeElement : null;
    const at = focused?.getAttribute("href");
    const box = focused?.dataset.job;
    byId("list").replaceChildren(...page.jobs.map(row));
    newest = page.jobs.filter((one) => one.algorithm).slice(0, 2).map((one) => one.id);
    offerComparison();
    if (at) byId("list").querySelector(`a[href="${at}"]`)?.focus();
    if (box) byId("list").querySelector(`[data-job="${box}"]`)?.focus();
    byId("list").setAttribute("aria-busy", "false");
    byId("none").hidden = page.jobs.length > 0;
    byId("older").disabled = page.next === null;
    byId("older").dataset.cursor = page.next || "";
    byId("newer").disabled = cursors.length === 1;
    byId("trouble").replaceChildren();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (mine !== asked) return;
    byId("trouble").replaceChildren(refusal(error));
    // Nothing will change by asking again where a key is missing or a filter makes no sense.
    if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
  }
  timer = setTimeout(show, EVERY);
}

for (const option of [...byId("algorithm").options].slice(1)) option.replaceChildren(algorithmName(option.value));

function again() {
  cursors = [null];
  show();
}

byId("filters").addEventListener("change", again);
byId("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  again();
});
byId("older").addEventListener("click", () => {
  cursors.push(byId("older").dataset.cursor);
  show();
});
byId("newer").addEventListener("click", () => {
  cursors.pop();
  show();
});
document.addEventListener("zetadp-key", again);
show();
watchWorkers();
