// A calculator's answer in words.

import { inner } from "./calculator-plots.js";
import { announce, bound, byId, el } from "./core.js";
import { rows } from "./derivation.js";
import { outdate } from "./meaning.js";
import { neighbourWords } from "./terms.js";

/** The line on top. `answer` is a profile if the guarantee was requested, else a calibration. */
export function headline(mode, answer, delta, records) {
  if (mode === "guarantee") return `epsilon at most ${bound(answer.epsilon[0].upper)} at delta ${delta}`;
  if (mode === "count") return `at most ${answer.value.toLocaleString("en")} ${holds(answer.event, "randomly_allocated") ? "epochs" : "releases"}`;
  if (mode === "sample" && answer.parameter.kind === "sample_size") return `samples of at most ${answer.value.toLocaleString("en")} records`;
  if (mode === "sample") {
    const share = `each unit in a sample with probability at most ${bound(answer.value, { digits: 6, down: true })}`;
    return records === null ? share : `samples of at most ${bound(answer.value * records, { digits: 6, down: true })} expected records: ${share}`;
  }
  const { mechanism } = inner(answer.event);
  const names = ["std", "std_real", "std_imag", "scale", "threshold_scale", "query_scale", "epsilon"].filter((name) => mechanism[name] !== undefined && mechanism[name] !== null);
  return names.map((name) => `${name} ${bound(mechanism[name], { digits: 6, down: name === "epsilon" })}`).join(", ");
}

/** Whether an event is of this kind, or what it holds. */
export const holds = (event, kind) => Boolean(event) && (event.kind === kind || holds(event.event, kind));

/** The lines below the headline of a calibrated answer, its conditions among them. */
export function remarks(answer, delta) {
  const lines = [`Then epsilon is at most ${bound(answer.guarantee.epsilon.upper)} at delta ${delta}.`];
  if (answer.noise_multiplier) lines.unshift(`Noise multiplier (deviation over sensitivity): ${bound(answer.noise_multiplier, { digits: 6 })}.`);
  if (answer.at_limit) lines.unshift("This is the largest or smallest value tried: the target is met with room to spare.");
  const { adjacency, unit } = answer.guarantee;
  return [...lines, ...sentences({ caveats: answer.caveats, adjacency, unit })];
}

/**
 * What can void the guarantee, for directly after it, and what it hides.
 * @param {{caveats: string[], adjacency: string | null, unit: string | null}} of
 */
export function sentences({ caveats: lines, adjacency, unit }) {
  const caveats = lines.length ? [el("p", { class: "title" }, "It holds only if:"), el("ul", { class: "caveats" }, ...lines.map((line) => el("li", {}, `${line}.`)))] : [];
  const words = neighbourWords(adjacency, unit);
  return [...caveats, ...(words ? [el("p", { class: "soft" }, `The bound is about ${words.choice}.`)] : [])];
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
  byId("route").textContent = `Accountant: ${profile.route}.${profile.gdp_mu === null ? "" : ` As Gaussian differential privacy: mu at most ${bound(profile.gdp_mu)}.`}`;
  byId("steps").replaceChildren(...rows(steps));
}
