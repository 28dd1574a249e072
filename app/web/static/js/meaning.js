// What a guarantee means for one person: the same wherever an (epsilon, delta) is shown, from the two numbers alone. All figures are the
// service's own, of whatever is (epsilon, delta)-DP; the words for a strength are ours and say where they change.

import { Problem, api, el, number, refusal } from "./core.js";
import { linePlot } from "./plots.js";

const SVG = "http://www.w3.org/2000/svg";
const RUNS = 100;
const COLUMNS = 25;
const PERSON = "M5 0a3 3 0 0 1 0 6 3 3 0 0 1 0-6M1.5 8.5Q1.5 7 3 7h4q1.5 0 1.5 1.5V13H7v5H3v-5H1.5z";
const CHANCE = 0.01; // of being named although left out
/** Strengths by the largest probability of a right guess at even odds, and by the largest delta. */
export const STRENGTHS = [
  { words: "Strong protection", colour: "good", guess: 75, delta: 1e-3 },
  { words: "Moderate protection", colour: "warn", guess: 90, delta: 1e-2 },
  { words: "Weak protection", colour: "bad", guess: 99, delta: 1e-1 },
  { words: "Almost no protection", colour: "bad", guess: Infinity, delta: Infinity },
];
const DEFINED =
  "These words are ours. Protection is strong while the guess below succeeds with at most 75 %, moderate up to 90 %, weak up to 99 %; it is called at most moderate from delta 0.001 on, at most weak from 0.01 on, and almost none from 0.1 on.";
const WITHOUT = { add_remove: "Left out", replace_one: "Replaced by another", zero_out: "Blanked out" };

/**
 * The first strength whose limits hold.
 * @param {number} guess in percent
 * @param {number} delta
 */
export function strength(guess, delta) {
  return STRENGTHS.find((one) => guess <= one.guess && delta < one.delta) || STRENGTHS.at(-1);
}

/**
 * The bound that a sentence of the service states, as it stands there; 100 % where nothing is promised.
 * @param {string} sentence
 * @returns {string}
 */
export function mostOf(sentence) {
  return /at most ([0-9.e-]+) %/.exec(sentence)?.[1] ?? "100";
}

/**
 * A number that isn't below the one that is meant: a decimal of a certificate may lie between two of a browser's.
 * @param {number | string} value
 * @returns {number}
 */
export function atLeast(value) {
  return typeof value === "string" ? number(value) * (1 + Number.EPSILON) : number(value);
}

function declared({ epsilon, delta, adjacency, unit }) {
  const bare = delta > 0 ? { kind: "approximate_dp", epsilon, delta } : { kind: "pure_dp", epsilon };
  return { kind: "release", mechanism: { ...bare, adjacency, unit } };
}

/**
 * Fills `place` with what (epsilon, delta) means.
 * @param {Element} place
 * @param {{epsilon: number | string, delta: number | string, adjacency: string | null, unit: string, signal?: AbortSignal, event?: object}} of
 *   epsilon and delta may be text of the service. There is a fold for the attacker's curve, also of the event if there is one: it is asked
 *   for only when that is opened.
 */
export async function explain(place, of) {
  const [epsilon, delta] = [atLeast(of.epsilon), atLeast(of.delta)];
  if (!of.adjacency || !Number.isFinite(epsilon) || !(delta < 1)) {
    place.replaceChildren(el("p", {}, el("span", { class: "label bad" }, "No protection"), "Nothing is promised to anybody."));
    return;
  }
  // Below what can be declared, the least that can says no less.
  const given = { epsilon: delta > 0 && epsilon === 0 ? 0 : Math.min(1e50, Math.max(1e-50, epsilon)), delta, adjacency: of.adjacency, unit: of.unit };
  const event = declared(given);
  const answer = await api("/v1/profiles", { method: "POST", signal: of.signal, body: { event, alphas: [CHANCE], priors: [0.5] } });
  const [named, guessed] = [answer.trade_off[0].sentence, answer.bayes_success[0].sentence];
  const [most, right] = [mostOf(named), mostOf(guessed)];
  const unit = of.unit.replaceAll("_", " ");
  const found = strength(Number(right), delta);
  const without = WITHOUT[of.adjacency];
  place.replaceChildren(
    el("p", {}, el("span", { class: `label ${found.colour}` }, found.words), ` Starting from even odds, a guess whether this ${unit} took part is right with probability at most ${right}\u00a0%.`),
    people(Number(most), `100 runs of one attack on one ${unit}. ${without}: named in 1 run, by chance. Took part: named in ${most} runs on average at most.`),
    el("p", { class: "soft" }, `One attack on one ${unit}, run 100 times. `, swatch(""), `${without}: named once, by chance. `, swatch(" taking"), `Took part: ${most} times at most, on average.`),
    el("details", {}, el("summary", {}, "In exact words"), ...[guessed, named, remote(of.delta, unit), DEFINED].filter(Boolean).map((line) => el("p", {}, line))),
    curveOf(of, given),
  );
}

/** A colour of the picture, which stays on the line of the words behind it. */
const swatch = (more) => [el("span", { class: `swatch${more}` }), "\u2060"];

function remote(delta, unit) {
  return delta > 0 ? `Delta allows even that the ${unit}'s data become public, with probability up to ${delta}.` : null;
}

/** A hundred figures, of which `most` (rounded up) are named; the first of them would be without taking part. */
function people(most, label) {
  const made = document.createElementNS(SVG, "svg");
  const rows = RUNS / COLUMNS;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${COLUMNS * 14} ${rows * 21}`, class: "people", role: "img", "aria-label": label })) made.setAttribute(name, value);
  const named = Math.min(RUNS, Math.ceil(most));
  for (let place = 0; place < RUNS; place += 1) {
    const one = document.createElementNS(SVG, "path");
    one.setAttribute("d", PERSON);
    one.setAttribute("transform", `translate(${(place % COLUMNS) * 14 + 2} ${Math.floor(place / COLUMNS) * 21 + 1})`);
    if (place < named) one.setAttribute("class", place < RUNS * CHANCE ? "chance" : "taking");
    made.append(one);
  }
  return made;
}

/** The attacker's errors, asked for when one wants to see them: what the two numbers allow, and what the event's whole curve does. */
function curveOf(of, given) {
  const part = el("details", {}, el("summary", {}, "The attacker's curve"));
  const place = el("div", {}, el("p", { class: "soft" }, "Computing…"));
  part.append(place);
  part.addEventListener("toggle", () => draw(part, place, of, given), { once: true });
  return part;
}

async function draw(part, place, of, given) {
  const alphas = [0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1];
  const ask = (event) => api("/v1/profiles", { method: "POST", signal: of.signal, body: { event, alphas, priors: [0.5] } });
  const points = (answer) => answer.trade_off.map((one) => [one.alpha, one.beta]);
  try {
    const pair = await ask(declared(given));
    const own = of.event ? await ask(of.event) : null;
    const series = [
      ...(own ? [{ name: "this noise, as a whole", curve: "step-before", points: points(own) }] : []),
      { name: "epsilon and delta alone", curve: "step-before", points: points(pair) },
      { name: "blind guessing", points: [[0, 1], [1, 0]] },
    ];
    const about = "For each probability of naming someone who was left out, the least probability of missing the same person when they took part.";
    const words = own
      ? [el("p", {}, "Epsilon and delta sum up a curve. The noise itself promises at least as much at each point, so these figures may be stronger than the ones above; both hold:"), el("p", {}, own.bayes_success[0].sentence), el("p", {}, own.trade_off[1].sentence)]
      : [];
    place.replaceChildren(...words, await linePlot({ title: "The attacker's errors", heading: "p", about, x: { label: "false positives (probability)" }, y: { label: "false negatives (probability, at least)" }, series, file: "attacker" }));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(refusal(error));
  }
}
