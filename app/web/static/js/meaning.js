// What a guarantee means for one person: the same wherever an (epsilon, delta) is shown, from the two numbers alone. All figures are the
// service's own, of whatever is (epsilon, delta)-DP.

import { Problem, api, el, refusal } from "./core.js";
import { attackerWords, linePlot } from "./plots.js";
import { neighbourWords, spelled } from "./terms.js";

const SVG = "http://www.w3.org/2000/svg";
const RUNS = 100;
const COLUMNS = 25;
const PERSON = "M5 0a3 3 0 0 1 0 6 3 3 0 0 1 0-6M1.5 8.5Q1.5 7 3 7h4q1.5 0 1.5 1.5V13H7v5H3v-5H1.5z";

const LARGEST = 1e50; // epsilon that the service takes

/** Whose answer a place waits for: an earlier one that comes later is of other numbers. */
const awaited = new WeakMap();

/** What stands there is of other numbers than the ones beside it now: it keeps its room and isn't shown. */
export function outdate(place) {
  awaited.delete(place);
  place.classList.add("outdated");
}

/** Shows nodes as what is true now. */
function put(place, ...nodes) {
  awaited.delete(place);
  place.replaceChildren(...nodes);
  place.classList.remove("outdated");
}

/**
 * What the service says of (epsilon, delta). Above what it takes, nothing more is promised.
 * @param {{epsilon: number | string, delta: number | string, adjacency: string | null, unit: string | null, units: number | null, signal?: AbortSignal}} of
 * @param {object} [more]
 */
function ask({ epsilon, delta, adjacency, unit, units, signal }, more = {}) {
  const given = typeof epsilon === "number" && epsilon > LARGEST ? "Infinity" : epsilon;
  return api("/v1/meanings", { method: "POST", signal, body: { epsilon: given, delta, adjacency, unit: unit || "unit", units, ...more } });
}

/**
 * Fills `place` with what (epsilon, delta) means; what stood there before isn't shown meanwhile.
 * @param {Element} place
 * @param {{epsilon: number | string, delta: number | string, adjacency: string | null, unit: string | null, units: number | null, signal?: AbortSignal, event?: object | null}} of
 *   epsilon and delta may be text of the service. `units`: how many there are, null where that isn't known. There is a fold for the attacker's
 *   curve, also of the event if there is one: it is asked for only when that is opened.
 */
export async function explain(place, of) {
  outdate(place);
  const mine = {};
  awaited.set(place, mine);
  let answer;
  try {
    answer = await ask(of);
  } catch (error) {
    if (awaited.get(place) === mine) place.replaceChildren();
    throw error;
  }
  if (awaited.get(place) === mine) put(place, ...told(of, neighbourWords(of.adjacency, of.unit || "unit"), answer));
}

/** Units that are people. */
const PEOPLE = new Set(["person", "patient", "user", "client", "individual", "celebrity", "speaker"]);

/** A clause about the unit after it was named: "it" or "they" stands for it. */
function pronoun(clause, unit) {
  const [subject, theirs] = PEOPLE.has(unit) ? ["they were", "their"] : ["it was", "its"];
  return clause.replace(`the ${unit}'s`, theirs).replace(`the ${unit} was`, subject);
}

function told(of, words, answer) {
  const { strength, tone, naming_percent: most } = answer;
  const label = el("span", { class: `label ${tone}` }, `${strength[0].toUpperCase()}${strength.slice(1)} protection`);
  if (!words || strength === "no") return [el("p", {}, label, "Nothing is promised to anybody.")];
  const unit = spelled(of.unit);
  const alarms = Math.round(RUNS * answer.naming.alpha); // the first figures of the picture
  const it = PEOPLE.has(unit) ? "them" : "it";
  const before = `An attack that names this ${unit} in `;
  const between = `${alarms} of ${RUNS} runs if ${pronoun(words.absent, unit)} names ${it} in at most `;
  const after = `${most} of ${RUNS} if not.`;
  const exact = [answer.naming.sentence, answer.guess.sentence, answer.publication, answer.strengths].filter(Boolean);
  return [
    el("p", {}, label, ` ${before}`, swatch(""), between, swatch(" taking"), after),
    words.shown ? el("p", {}, words.shown) : null,
    people(alarms, Number(most), `${before}${between}${after}`),
    el("details", {}, el("summary", {}, "Exact words"), ...exact.map((line) => el("p", {}, line)), curveOf(of, words)),
  ].filter(Boolean);
}

/** A colour of the picture, which stays on the line of the words behind it. */
const swatch = (more) => [el("span", { class: `swatch${more}` }), "\u2060"];

/** A hundred figures, of which `most` (rounded up) are named; the first `alarms` of them would be falsely. */
function people(alarms, most, label) {
  const made = document.createElementNS(SVG, "svg");
  const rows = RUNS / COLUMNS;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${COLUMNS * 14} ${rows * 21}`, class: "people", role: "img", "aria-label": label })) made.setAttribute(name, value);
  const named = Math.min(RUNS, Math.ceil(most));
  for (let place = 0; place < RUNS; place += 1) {
    const one = document.createElementNS(SVG, "path");
    one.setAttribute("d", PERSON);
    one.setAttribute("transform", `translate(${(place % COLUMNS) * 14 + 2} ${Math.floor(place / COLUMNS) * 21 + 1})`);
    if (place < named) one.setAttribute("class", place < alarms ? "chance" : "taking");
    made.append(one);
  }
  return made;
}

/** The attacker's errors, asked for when one wants to see them: what the two numbers allow, and what the event's whole curve does. */
function curveOf(of, words) {
  const part = el("details", {}, el("summary", {}, "Attacker's curve"));
  const place = el("div", {}, el("p", { class: "soft" }, "Computing…"));
  part.append(place);
  part.addEventListener("toggle", () => draw(place, of, words), { once: true });
  return part;
}

const ALPHAS = [0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1];

async function draw(place, of, words) {
  const points = (answer) => answer.trade_off.map((one) => [one.alpha, one.beta]);
  try {
    const pair = await ask(of, { alphas: ALPHAS });
    const own = of.event ? await api("/v1/profiles", { method: "POST", signal: of.signal, body: { event: of.event, alphas: ALPHAS, priors: [0.5] } }) : null;
    const series = [
      ...(own ? [{ name: "this noise, as a whole", curve: "step-before", points: points(own) }] : []),
      { name: "epsilon and delta alone", curve: "step-before", points: points(pair) },
      { name: "blind guessing", points: [[0, 1], [1, 0]] },
    ];
    const both = own
      ? [el("p", {}, "Epsilon and delta sum up a curve. The noise itself promises at least as much at each point, so these figures may be stronger than the ones above; both hold:"), el("p", {}, own.bayes_success[0].sentence), el("p", {}, own.trade_off[1].sentence)]
      : [];
    place.replaceChildren(...both, await linePlot({ title: "The attacker's errors", heading: "p", about: attackerWords(words), x: { label: "false positives (probability)" }, y: { label: "false negatives (probability, at least)" }, series, file: "attacker" }));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(refusal(error));
  }
}
