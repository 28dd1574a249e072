// One calculator: reads the form, asks the service while you type, and keeps everything in the address.

import { derive, headline, holds, remarks, sentences, show } from "./calculator-answer.js";
import { draw, inner } from "./calculator-plots.js";
import { Problem, api, byId, el, later } from "./core.js";
import { offer } from "./exports.js";
import { FieldProblem, asTyped, blame, clear, decimal, fits, gathered, giveUp, keep, markPending, markStale, recall, sentence, tell, whole } from "./form.js";
import { explain } from "./meaning.js";
import { compare, epsilonOf, forget } from "./published.js";
import { unitsIn } from "./units.js";

const PAUSE = 60; // milliseconds without a key before the service is asked
const REST = 250; // and, once there is an answer, before plots and comparisons are: they cost more than it does
const MODES = ["guarantee", "noise", "count", "sample"];
const root = byId("calculator");
const kind = root.dataset.kind;
const training = root.dataset.training === "yes";
const form = byId("form");
const fields = [...form.querySelectorAll("[data-path]")];
const solved = form.querySelector("[data-solved] [data-path]"); // what is found where noise is asked for
const countLabel = form.querySelector("label[for=count]");
const counted = countLabel.textContent;
const own = Object.fromEntries([...document.querySelectorAll("[data-own]")].map((input) => [input.dataset.own, input]));

let running = new AbortController();
let last; // the input that was typed in last
let shown = null; // the last good answer's request, for what is copied
let plotted = null; // what plots are drawn of, once they are unfolded; null where there is no answer

const mode = () => form.elements.mode.value;
const isBySize = () => own.sampling.value === "size";

// What is asked

function probability() {
  if (!isBySize()) {
    const value = decimal(own.probability);
    if (!(value > 0 && value <= 1)) throw new FieldProblem(own.probability, "Must be more than 0 and at most 1.");
    return value;
  }
  const [batch, records] = [positive(own.batch), positive(own.records)];
  if (batch > records) throw new FieldProblem(own.batch, "Must be at most the number of records.");
  return quotientUp(batch, records);
}

function positive(input) {
  const value = whole(input);
  if (value < 1) throw new FieldProblem(input, "Must be at least 1.");
  if (value > 1e15) throw new FieldProblem(input, "Must be at most 1e15.");
  return value;
}

/** The float at or just above a quotient of whole numbers: a rate that is rounded down would promise too much. */
function quotientUp(over, under) {
  const value = over / under;
  const shift = 52 - Math.floor(Math.log2(value)) + 2;
  const isEnough = BigInt(value * 2 ** shift) * BigInt(under) >= BigInt(over) << BigInt(shift);
  return isEnough ? value : Math.min(1, value * (1 + Number.EPSILON));
}

/** Draws by the sampling that is chosen, or leaves an event whole where everything is drawn. */
function sampled(event) {
  const unknown = mode() === "sample";
  if (own.sampling.value === "allocated") {
    if (unknown) throw new FieldProblem(own.sampling, "Here the steps of an epoch determine the samples: choose another way, or another question.");
    return { kind: "randomly_allocated", steps: positive(own.epoch), event };
  }
  if (own.sampling.value === "cut") {
    const [largest_batch, population_size] = [positive(own.largest), positive(own.records)];
    return { kind: "truncated_poisson_sampled", probability: unknown ? 0.5 : probability(), largest_batch, population_size, event };
  }
  if (own.sampling.value === "fixed") {
    const population = positive(own.records);
    const size = unknown ? 1 : positive(own.batch);
    if (size > population) throw new FieldProblem(own.batch, "Must be at most the number of records.");
    return { kind: "fixed_size_sampled", sample_size: size, population_size: population, event };
  }
  const share = unknown ? 1 : probability();
  return share < 1 || unknown ? { kind: "poisson_sampled", probability: share, event } : event;
}

/** Whether the noise is given for the real and the imaginary part apart, which leaves no room for one deviation of both. */
const isInParts = () => fields.some((input) => ["std_real", "std_imag"].includes(input.dataset.path) && input.value.trim() !== "");

/** The mechanism; where its noise is asked for, with a first value for it, whatever is typed in the hidden field. */
function mechanismOf() {
  if (mode() !== "noise" || !solved || solved.value.trim() === "") return gathered(fields, { kind });
  if (isInParts()) return gathered(fields.filter((input) => input !== solved), { kind });
  return gathered(fields.filter((input) => input !== solved), { kind, [solved.dataset.path]: Number(solved.defaultValue) });
}

function eventOf(count) {
  let event = sampled({ kind: "release", mechanism: mechanismOf() });
  if (training || count > 1 || mode() === "count") event = { kind: "repeated", count, event };
  const runs = own.runs.value;
  const shape = runs === "truncated_negative_binomial" ? { shape: decimal(own.shape) } : {};
  if (runs) event = { kind: "repeated_and_selected", runs: { kind: runs, mean: decimal(own.mean), ...shape }, event };
  const size = positive(own.group);
  const { mechanism } = inner(event);
  const { unit } = mechanism.sensitivity || mechanism;
  return size > 1 ? { kind: "grouped", size, unit: unit === "person" ? `group_of_${size}` : "person", event } : event;
}

function asked() {
  const wanted = mode();
  const delta = decimal(own.delta);
  if (!(delta > 0 && delta < 1)) throw new FieldProblem(own.delta, "Must be more than 0 and less than 1.");
  const count = wanted === "count" ? 1 : whole(own.count);
  if (count < 1) throw new FieldProblem(own.count, "Must be at least 1.");
  const event = eventOf(count);
  if (wanted === "guarantee") return { path: "/v1/profiles", body: { event, deltas: [delta] }, delta };
  const epsilon = decimal(own.epsilon);
  if (!(epsilon > 0)) throw new FieldProblem(own.epsilon, "Must be more than 0.");
  const part = own.sampling.value === "fixed" ? "sample_size" : "sampling_probability";
  const parameter = { noise: undefined, count: { kind: "steps" }, sample: { kind: part } }[wanted];
  return { path: "/v1/calibrations", body: { event, target: { epsilon, delta }, ...(parameter ? { parameter } : {}) }, delta, epsilon };
}

/** The input that a message is about, if one sees it. */
function inputOf(path) {
  const found = named(path);
  return found?.closest("[hidden]") ? undefined : found;
}

function named(path) {
  const within = /(?:^|\.)mechanism\.(.+)$/.exec(path)?.[1];
  if (within) {
    const name = within.replace(/\[\d+\]/g, "");
    const parts = fields.filter((input) => input.dataset.path.startsWith(`${name}.`));
    // A message on several fields at once, one of which was emptied.
    const emptied = parts.find((input) => input.value.trim() === "" && input.defaultValue !== "");
    return fields.find((input) => input.dataset.path === name) || emptied || fields.find((input) => name.endsWith(input.dataset.path));
  }
  if (/runs\.mean$/.test(path)) return own.mean;
  if (/runs\.shape$/.test(path)) return own.shape;
  if (/deltas|target\.delta/.test(path)) return own.delta;
  if (/target\.epsilon/.test(path)) return own.epsilon;
  if (/probability$/.test(path)) return isBySize() ? own.batch : own.probability;
  if (/count$/.test(path)) return own.count;
  if (/sample_size$/.test(path)) return own.batch;
  if (/population_size$/.test(path)) return own.records;
  if (/largest_batch$/.test(path)) return own.largest;
  if (/steps$/.test(path)) return own.epoch;
  if (/size$/.test(path)) return own.group;
  return fields.find((input) => input.dataset.path === path);
}

// The answer, then what belongs to it

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  clear(form);
  remember();
  let wanted;
  try {
    wanted = asked();
  } catch (error) {
    if (!(error instanceof FieldProblem)) throw error;
    blame(error.input, error.message);
    refuse();
    return;
  }
  markPending();
  try {
    await answerTo(wanted, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    refuse();
    if (error instanceof FieldProblem) blame(error.input, error.message);
    else if (error instanceof Problem) tellWhy(error);
    else giveUp(error);
  } finally {
    if (!signal.aborted) byId("answer").setAttribute("aria-busy", "false");
  }
}

/** There is no answer for what is typed: nothing below is shown of anything else. */
function refuse() {
  plotted = null;
  shown = null;
  markStale(true);
  byId("answer").setAttribute("aria-busy", "false");
  byId("plots").replaceChildren(el("p", {}, "There are no plots of the current values."));
  for (const name of ["steps", "route"]) byId(name).replaceChildren();
  forget("The current values have no answer to compare with.");
  byId("below").setAttribute("aria-busy", "false");
  byId("plots").setAttribute("aria-busy", "false");
}

async function answerTo(wanted, signal) {
  const current = mode();
  const delta = asTyped(own.delta);
  const bySize = isBySize() ? positive(own.records) : null; // which the event then doesn't say
  const records = current === "sample" ? bySize : null;
  const ask = (path, body) => api(path, { method: "POST", body, signal });
  const answer = await ask(wanted.path, current === "guarantee" ? wanted.body : { ...wanted.body, derivation: true });
  const event = answer.event || wanted.body.event;
  const lines = current === "guarantee" ? sentences({ ...answer, epsilon: answer.epsilon[0].upper }) : remarks(answer, delta);
  const { mechanism } = inner(event);
  show(headline(current, answer, delta, records, asTyped(own.epsilon)), lines);
  shown = wanted;
  byId("as-event").href = `/calculators/event?${new URLSearchParams({ event: JSON.stringify(event), delta })}`;
  markStale(false);
  const profile = await ask("/v1/profiles", { event, deltas: [wanted.delta], derivation: true });
  const { adjacency, unit } = profile;
  const units = holds(event, "grouped") ? null : (bySize ?? unitsIn(event));
  await explain(byId("meaning"), { epsilon: profile.epsilon[0].upper, delta: wanted.delta, adjacency, unit, units, signal, event: isSlow(event) ? null : event });
  derive([...(current === "guarantee" ? [] : answer.derivation.slice(0, 1)), ...profile.derivation], profile);
  byId("answer").setAttribute("aria-busy", "false");
  plotted = { event, profile, delta, signal };
  byId("plots").setAttribute("aria-busy", String(byId("plots-part").open));
  await rest(signal);
  await compare({ ...partsOf(event), mechanism, epsilon: epsilonOf(current, wanted.epsilon, profile), delta: wanted.delta }, signal);
  byId("below").setAttribute("aria-busy", "false");
  await plots();
}

/** Draws what is chosen, if anybody looks at it. */
async function plots() {
  if (!plotted || !byId("plots-part").open) {
    byId("plots").setAttribute("aria-busy", "false");
    return;
  }
  if (isSlow(plotted.event)) {
    byId("plots").replaceChildren(el("p", {}, "Plots of random allocation take too long to compute here."));
    byId("plots").setAttribute("aria-busy", "false");
    return;
  }
  await draw(byId("plots"), own.plot.value, plotted);
}

/** Of random allocation every further point takes a search of many seconds. */
const isSlow = (event) => holds(event, "randomly_allocated");

/** What comparisons are asked with. */
function partsOf(event) {
  const found = { count: 1, probability: 1, sampler: "poisson" };
  for (let part = event; part; part = part.event) {
    if (part.kind === "repeated") found.count = part.count;
    if (part.kind === "poisson_sampled") found.probability = part.probability;
    if (["truncated_poisson_sampled", "randomly_allocated", "repeated_and_selected"].includes(part.kind)) found.beyond = part.kind;
    if (part.kind === "fixed_size_sampled") Object.assign(found, { sampler: "fixed_size", batch_size: part.sample_size, population_size: part.population_size });
  }
  return found;
}

function rest(signal) {
  byId("plots").setAttribute("aria-busy", "true");
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, REST);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** A refusal of the service, shown next to its field if it has one; an unreachable target is explained in the form's own words. */
function tellWhy(problem) {
  if (problem.type.endsWith("unsupported-event")) {
    const reason = sentence(problem.message.replace(/^accountant \w+ can't bound this event: /, ""));
    const needed = /sensitivity\.l[12]_contribution/.exec(reason)?.[0];
    const place = fields.find((input) => input.dataset.path === needed) || (own.group.value.trim() === "1" ? null : own.group);
    if (place) {
      blame(place, reason);
      return;
    }
  }
  if (!problem.type.endsWith("calibration-failed")) {
    tell(problem, inputOf, last);
    return;
  }
  const words = {
    noise: "No noise that was tried meets this epsilon and delta.",
    count: "Not even one release meets this epsilon and delta: use more noise.",
    sample: "Not even the smallest samples meet this epsilon and delta: use more noise or fewer steps.",
  };
  blame(own.epsilon, words[mode()] || problem.message);
}

// The address holds the whole form

function query() {
  const made = new URLSearchParams({ mode: mode() });
  keep(made, own, fields);
  if (!byId("plots-part").open) made.delete("plot");
  return made;
}

function remember() {
  if (fits([...Object.values(own), ...fields])) history.replaceState(null, "", `${location.pathname}?${query()}`);
}

/** A choice is a step that the browser can go back from; typing isn't. */
function step() {
  if (fits([...Object.values(own), ...fields])) history.pushState(null, "", `${location.pathname}?${query()}`);
}

function restore() {
  const found = new URLSearchParams(location.search);
  form.elements.mode.value = MODES.includes(found.get("mode")) ? found.get("mode") : MODES[0];
  if (!form.elements.mode.value) form.elements.mode.value = MODES[0];
  recall(found, own, fields);
  // A link that names the parts' noise means them alone.
  if (solved && isInParts() && !found.has(solved.dataset.path)) solved.value = "";
  const first = (input) => (input.tagName === "SELECT" ? input.options[0].value : input.defaultValue);
  const folded = form.querySelectorAll("details [data-own]");
  for (const input of folded) if (input.value !== first(input)) input.closest("details").open = true;
  if (found.has("plot")) byId("plots-part").open = true;
  arrange();
}

function arrange() {
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(mode());
  for (const part of form.querySelectorAll("[data-sampling]")) {
    const wanted = part.dataset.sampling.split(" ").includes(own.sampling.value);
    part.hidden = !wanted || (mode() === "sample" && part.dataset.answered === "sample");
  }
  for (const part of form.querySelectorAll("[data-runs]")) part.hidden = !part.dataset.runs.split(" ").includes(own.runs.value);
  countLabel.textContent = own.sampling.value === "allocated" ? "Epochs" : counted;
}

/** The plots alone: nothing of the answer changed. */
async function redraw() {
  if (plotted?.signal.aborted) return;
  try {
    await plots();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

offer(() => shown);

const soonest = later(update, PAUSE);
/** From the keystroke on, the shown answer is outdated. */
function soon() {
  markPending();
  byId("below").setAttribute("aria-busy", "true");
  if (byId("plots-part").open) byId("plots").setAttribute("aria-busy", "true");
  soonest();
}
form.addEventListener("input", (event) => {
  last = event.target.id ? event.target : undefined;
  arrange();
  if (event.target.type === "radio" || event.target.tagName === "SELECT") step();
  soon();
});
own.plot.addEventListener("input", () => {
  step();
  redraw();
});
byId("plots-part").addEventListener("toggle", () => {
  remember();
  redraw();
});
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("popstate", () => {
  restore();
  update();
});
document.addEventListener("zetadp-key", soon);
restore();
update();
