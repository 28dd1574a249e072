// The parts of a new job's form that one looks at: recipes as cards, epsilon with what it means, and the whole in words.

import { Problem, bound, byId, el, figure, later, number } from "./core.js";
import { algorithmName, privacyOf } from "./jobs-common.js";
import { explain, outdate } from "./meaning.js";
import { say } from "./submit-fields.js";
import { neighbourWords, spelled } from "./terms.js";

const NUMBER = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const PAUSE = 150;
let running = new AbortController();

/** One card for each recipe that can run; the others by name, and what they lack. `chosen` is called with a recipe's name. */
export function showRecipes(recipes, chosen) {
  const kept = document.querySelector("#recipes input:checked")?.value;
  const card = (one) =>
    el(
      "label",
      { class: "choice" },
      el("input", { type: "radio", name: "recipe", value: one.name, checked: one.name === kept, on: { change: () => chosen(one.name) } }),
      el("span", {}, el("strong", {}, one.title), el("span", { class: "soft" }, reaches(one))),
    );
  byId("recipes").replaceChildren(...recipes.filter((one) => one.data.available).map(card));
  const missing = recipes.filter((one) => !one.data.available);
  byId("more-recipes").hidden = missing.length === 0;
  byId("missing-recipes").replaceChildren(...missing.map((one) => el("li", {}, `${one.title}: ${one.data.missing}`)));
}

/** What a paper prints of the same, with what it is of: its epsilon may be another one, or wrong. */
function printedWords({ compared_result: printed, printed_epsilons: epsilons }) {
  if (!printed) return "";
  const [name, value] = Object.entries(printed.figures)[0];
  const claims = [...new Set(epsilons.map((one) => one.epsilon))];
  const at = printed.epsilon === null && claims.length ? `, at what it prints as epsilon ${claims.join(" or ")}` : "";
  return `Its paper prints ${name.replaceAll("_", " ")} ${figure(value)} (${printed.of}${at}).`;
}

function reaches(one) {
  const { proven } = one;
  const guarantee = proven ? `epsilon ${bound(proven.epsilon)} at delta ${proven.delta} for each ${spelled(proven.unit)}, ${proven.steps ? `${proven.steps} steps` : algorithmName(one.algorithm)}` : "no guarantee: it shows why";
  const [best] = [...one.measured].sort((first, second) => Math.abs(first.epsilon - proven?.epsilon) - Math.abs(second.epsilon - proven?.epsilon));
  if (best) return ` ${guarantee}. Reached ${best.metric.replaceAll("_", " ")} ${figure(best.mean, 3)} at epsilon ${best.epsilon} here.`;
  return ` ${guarantee}. ${printedWords(one)}`;
}

/**
 * What stands in the job: epsilon and what it means, and a sentence for all of it.
 * @param {any} job null where there is none
 * @param {number | null} units how many its data set has, of what it protects; null where that isn't known
 */
export function showJob(job, units) {
  const privacy = privacyOf(job);
  const asked = privacy && typeof privacy.epsilon === "number";
  byId("guarantee").hidden = !asked;
  byId("no-guarantee").hidden = job === null || Boolean(asked);
  byId("no-guarantee").textContent = `${job && compared(job.spec) ? COMPARED : job && selected(job.spec) ? SELECTED : GIVEN} ${LATER}`;
  byId("review").textContent = job === null ? "Choose a recipe first." : words(job, privacy);
  if (!asked) {
    forget();
    return;
  }
  if (byId("epsilon").getAttribute("aria-invalid") !== "true" && Number(byId("epsilon").value) !== privacy.epsilon) byId("epsilon").value = String(privacy.epsilon);
  if (!isWhole(privacy)) {
    forget();
    byId("delta-words").textContent = "What it means is shown once the job names an epsilon above 0, a delta from 0 to below 1, neighbours and a unit.";
    return;
  }
  byId("epsilon-slider").value = String(Math.log10(privacy.epsilon));
  byId("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${privacy.epsilon}`);
  byId("delta-words").textContent = `At delta ${privacy.delta}, for one ${spelled(privacy.unit)}.`;
  outdate(byId("meaning"));
  meaning(privacy, units);
}

/**
 * What a recipe may be expected to reach at an epsilon: what it reached at the nearest ones that were measured.
 * @param {{epsilon: number, metric: string, mean: number, runs: number}[]} measured from the smallest epsilon on
 * @param {unknown} epsilon
 */
export function expected(measured, epsilon) {
  if (!measured.length || typeof epsilon !== "number") return "";
  const below = measured.filter((one) => one.epsilon <= epsilon).at(-1);
  const above = measured.find((one) => one.epsilon >= epsilon);
  const near = [...new Set([below, above])].filter(Boolean);
  const { metric, runs } = near[0];
  const where = near.map((one) => one.epsilon).join(" and ");
  const what = near.map((one) => figure(one.mean, 3)).join(" to ");
  const only = below && above ? "" : ", the nearest that was measured";
  if (!below) return `Expect less than about ${what} of ${metric.replaceAll("_", " ")}: that is what this recipe reached at epsilon ${where}, the smallest that was measured (${runs} runs each, on its own data).`;
  return `Expect ${metric.replaceAll("_", " ")} of about ${what}: what this recipe reached at epsilon ${where}${only} (${runs} runs each, on its own data). Single runs differ.`;
}

/** Whether what a job has to guarantee says enough to be explained. */
function isWhole({ epsilon, delta, adjacency, unit }) {
  return epsilon > 0 && Number.isFinite(epsilon) && typeof delta === "number" && delta >= 0 && delta < 1 && typeof unit === "string" && unit !== "" && neighbourWords(adjacency, unit) !== null;
}

/** Shows no meaning: what stands in the form has none. */
function forget() {
  meaning.cancel();
  running.abort();
  byId("meaning").replaceChildren();
  byId("delta-words").textContent = "";
}

const meaning = later(async ({ epsilon, delta, adjacency, unit }, units) => {
  running.abort();
  running = new AbortController();
  try {
    await explain(byId("meaning"), { epsilon, delta, adjacency, unit, units, signal: running.signal });
  } catch (error) {
    // Whoever may not calculate can still send a job.
    if (error instanceof Problem) byId("meaning").replaceChildren();
    else if (error.name !== "AbortError") throw error;
  }
}, PAUSE);

const GIVEN = "Here the noise is given, not epsilon: change it in the JSON.";
const COMPARED = "A comparison's guarantee is for all its runs together. The epsilons of single runs stand in the JSON.";
const SELECTED = "A private selection's guarantee counts the choice among its candidates. The epsilons of single runs stand in the JSON.";
const LATER = "The job's page says what it guarantees before anything is released.";

/** How many trainings a comparison is; NaN where its JSON doesn't say. */
function runsOf({ parts, epsilons, repetitions }) {
  const isCalibrated = (part) => typeof privacyOf(part)?.epsilon === "number";
  return parts.reduce((all, part) => all + (Array.isArray(epsilons) && isCalibrated(part) ? epsilons.length : 1), 0) * number(repetitions ?? 1);
}

/** What a comparison runs and what of it counts; null for a single training. */
function compared(spec) {
  if (spec.algorithm !== "comparison" || !Array.isArray(spec.parts)) return null;
  const runs = runsOf(spec);
  const times = Number.isInteger(runs) && runs > 0 ? `${runs} ${runs === 1 ? "run" : "runs"}` : "every run";
  return `What it guarantees follows from all runs together: ${times}, each counted, repetitions too.${runs === 1 ? "" : " That is weaker than each run alone."}`;
}

/** What a private selection's guarantee counts; null for anything else. */
function selected(spec) {
  if (spec.algorithm !== "private_selection") return null;
  return "What it guarantees counts the choice of the best run: that is weaker than one run alone, and doesn't depend on how many candidates there are.";
}

function words({ spec, ledger }, privacy) {
  const steps = number(spec.steps) > 0 ? ` for ${spec.steps} steps` : "";
  const data = spec.data?.kind === "uploaded" ? "your data set" : String(spec.data?.kind || "its data").replaceAll("_", " ");
  const asks = privacy && typeof privacy.epsilon === "number";
  const stated = asks && isWhole(privacy) ? `If it succeeds, its certificate states at most epsilon ${privacy.epsilon} at delta ${privacy.delta} for each ${spelled(privacy.unit)}.` : "What it has to guarantee isn't complete yet.";
  const guarantee = asks ? stated : (compared(spec) ?? selected(spec) ?? "What it guarantees follows from its noise.");
  return `Runs ${algorithmName(spec.algorithm)} on ${data}${steps}. ${guarantee} ${ledger ? "Its cost is reserved from the budget first." : "No budget is charged."} Before it starts, a worker works out its noise; if the data don't fit, it fails and says why.`;
}

/** Writes a typed or dragged epsilon into the job by `change`, which gets a function of the job. */
export function editGuarantee(change) {
  const write = (value) => {
    say("epsilon", "");
    change((job) => {
      privacyOf(job).epsilon = value;
    });
  };
  byId("epsilon").addEventListener("input", () => {
    const text = byId("epsilon").value.trim();
    const value = Number(text);
    if (text.length > 40 || !NUMBER.test(text) || !Number.isFinite(value) || !(value > 0)) {
      say("epsilon", "Enter a number above 0, such as 2 or 0.5.");
      forget();
    } else write(value);
  });
  byId("epsilon-slider").addEventListener("input", () => {
    const value = Number((10 ** Number(byId("epsilon-slider").value)).toPrecision(2));
    byId("epsilon").value = String(value);
    write(value);
  });
}
