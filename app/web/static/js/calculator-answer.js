// A calculator's answer in words.

import { inner } from "./calculator-plots.js";
import { announce, bound, byId, el, number } from "./core.js";
import { rows } from "./derivation.js";
import { outdate } from "./meaning.js";
import { neighbourWords } from "./terms.js";

const NOISE = { std: "std", std_real: "real std", std_imag: "imaginary std", scale: "scale", threshold_scale: "scale on the threshold", query_scale: "scale on each query", epsilon: "pure epsilon per record" };

/** The line on top. `answer` is a profile if the guarantee was requested, else a calibration; `epsilon` is the one that was asked for, as typed. */
export function headline(mode, answer, delta, records, epsilon) {
  if (mode === "guarantee") return guaranteed(answer.epsilon[0].upper, delta);
  return `${calibrated(mode, answer, records)}, for epsilon ${epsilon} at delta ${delta}`;
}

/** A guarantee as a headline; an infinite epsilon is none. `delta` is as typed. */
export const guaranteed = (epsilon, delta) => (Number.isFinite(number(epsilon)) ? `epsilon at most ${bound(epsilon)} at delta ${delta}` : `no guarantee: no finite epsilon is proven at delta ${delta}`);

function calibrated(mode, answer, records) {
  if (mode === "count") return `at most ${answer.value.toLocaleString("en")} ${holds(answer.event, "randomly_allocated") ? "epoch" : "release"}${answer.value === 1 ? "" : "s"}`;
  if (mode === "sample" && answer.parameter.kind === "sample_size") return `samples of at most ${answer.value.toLocaleString("en")} record${answer.value === 1 ? "" : "s"}`;
  if (mode === "sample") {
    const share = `each unit in a sample with probability at most ${bound(answer.value, { digits: 6, down: true })}`;
    return records === null ? share : `samples of at most ${bound(answer.value * records, { digits: 6, down: true })} expected records: ${share}`;
  }
  const { mechanism } = inner(answer.event);
  const names = Object.keys(NOISE).filter((name) => mechanism[name] !== undefined && mechanism[name] !== null);
  return names.map((name) => `${NOISE[name]} ${bound(mechanism[name], { digits: 6, down: name === "epsilon" })}`).join(", ");
}

/** Whether an event is of this kind, or what it holds. */
export const holds = (event, kind) => Boolean(event) && (event.kind === kind || holds(event.event, kind));

/** The lines below the headline of a calibrated answer: its conditions first, as below every headline. */
export function remarks(answer, delta) {
  const { adjacency, unit, epsilon } = answer.guarantee;
  const lines = [`It gives epsilon at most ${bound(epsilon.upper)} at delta ${delta}.`];
  if (inner(answer.event).mechanism.std_real) lines.push("The two are in the ratio that you entered.");
  if (answer.noise_multiplier) lines.push(`Noise multiplier: ${bound(answer.noise_multiplier, { digits: 6 })}.`);
  if (answer.at_limit) lines.push("This is the largest or smallest value tried: the target is met with room to spare.");
  return [...sentences({ caveats: answer.caveats, adjacency, unit, epsilon: epsilon.upper }), lines.join(" ")];
}

/**
 * What can void the guarantee, for directly after it, and what it hides. An infinite epsilon holds for nobody: nothing is said then.
 * @param {{caveats: string[], adjacency: string | null, unit: string | null, epsilon: number | string}} of
 */
export function sentences({ caveats: lines, adjacency, unit, epsilon }) {
  if (!Number.isFinite(number(epsilon))) return [];
  const words = neighbourWords(adjacency, unit);
  const subject = words ? `Holds for ${words.choice}` : "Holds";
  if (!lines.length) return words ? [el("p", {}, `${subject}.`)] : [];
  return [el("p", { class: "title" }, `${subject}, only if:`), el("ul", { class: "caveats" }, ...lines.map((line) => el("li", {}, `${line}.`)))];
}

/** Puts the headline and its lines on the page, together: no figure stands there without its conditions. */
export function show(text, lines) {
  byId("headline").textContent = text;
  outdate(byId("meaning"));
  byId("sentences").replaceChildren(...lines.map((line) => (typeof line === "string" ? el("p", {}, line) : line)));
  announce(text);
}

/** A derivation, line by line. Above it, which accountant it is, and mu where there is one. */
export function derive(steps, profile) {
  byId("route").textContent = `Accountant: ${profile.route}.${Number.isFinite(number(profile.gdp_mu)) ? ` As Gaussian differential privacy: mu at most ${bound(profile.gdp_mu)}.` : ""}`;
  byId("steps").replaceChildren(...rows(steps));
}
