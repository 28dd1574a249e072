// Printed statements next to proven ones, as a table that says in words what each print does to a reader who relies on it.

import { bound, el, figure, number } from "./core.js";
import { inLine } from "./derivation.js";
import { paperName } from "./terms.js";

/** Each direction: in a tag, its colour, and in a sentence. */
const VERDICTS = {
  overclaims: ["promises too much", "bad", "The print promises more privacy than is proven. Don't rely on it."],
  loose: ["looser than needed", "soft", "The print promises less than is proven: safe, and more costly than it has to be."],
  equal: ["right", "good", "The print equals what is proven."],
  differs: ["differs", "warn", "The print is a different number from the proven one, and neither promises more."],
  does_not_apply: ["doesn't apply", "soft", "The print says nothing about these values."],
};

export function verdict(direction) {
  const [words, colour] = VERDICTS[direction] || [direction, "soft"];
  return el("span", { class: `tag ${colour}` }, words);
}

/** A link to a row of the errata. */
export function erratum(row) {
  return el("a", { href: `/papers#${row}` }, row);
}

/**
 * The proved number, rounded to the side on which it promises less: upwards for an upper bound (`isUpper`), else as follows from what the print
 * was found to do. Where nothing says which side that is, it stands in full.
 */
export function proven(of, isUpper = false) {
  const [printed, value] = [number(of.printed), number(of.proven)];
  if (Number.isNaN(value)) return "no number";
  if (isUpper) return bound(value, { digits: 6 });
  if (!Number.isFinite(value) || (of.direction !== "overclaims" && of.direction !== "loose")) return Number.isFinite(value) ? String(value) : bound(value);
  const smallerIsStronger = (of.direction === "overclaims") === printed < value;
  return bound(value, { digits: 6, down: !smallerIsStronger });
}

function printed(of) {
  return Number.isNaN(number(of.printed)) ? "nothing" : figure(of.printed, 6);
}

function row(finding) {
  // What follows for epsilon says more than the quantity it follows from.
  const point = finding.epsilon[0];
  const shown = point || finding;
  const what = point ? `epsilon at delta ${point.at}` : finding.quantity;
  const detail = [
    point ? el("p", {}, `From: ${finding.quantity}: printed ${printed(finding)}, proven ${proven(finding)}.`) : null,
    el("p", {}, "Printed: ", finding.printed_formula),
    el("p", {}, "Proven: ", finding.proven_formula),
    finding.note ? el("p", {}, finding.note) : null,
    finding.derivation.length
      ? el("ul", {}, ...finding.derivation.map((step) => el("li", {}, inLine(step))))
      : null,
    finding.counterexample ? el("p", {}, "Smallest counterexample: ", finding.counterexample.description) : null,
  ];
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, what, el("div", { class: "soft source" }, `${paperName(finding.paper)}, ${finding.where}`)),
    el("td", { "data-name": "Published", class: "mono" }, printed(shown)),
    el("td", { "data-name": "Proven", class: "mono" }, proven(shown, Boolean(point))),
    el("td", { "data-name": "Verdict" }, verdict(shown.direction), el("details", {}, el("summary", {}, "Why"), ...detail)),
    el("td", { "data-name": "Row" }, erratum(finding.erratum)),
  );
}

export function table(findings, label) {
  const head = ["What is stated", "Published", "Proven", "Verdict", "Errata"];
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", { class: "stacked findings" }, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...findings.map(row))),
  );
}

export const directionOf = (finding) => finding.epsilon[0]?.direction || finding.direction;

/** What all of them come to, in words; a warning where one promises too much. */
export function summary(findings) {
  const said = {
    overclaims: ["promises more privacy than is proven", "promise more privacy than is proven"],
    loose: ["promises less than is proven", "promise less than is proven"],
    equal: ["promises exactly what is proven", "promise exactly what is proven"],
    differs: ["is a different number and promises neither more nor less", "are different numbers and promise neither more nor less"],
  };
  const counts = Object.entries(said).map(([name, words]) => [findings.filter((one) => directionOf(one) === name).length, words]);
  const parts = counts.filter(([times]) => times).map(([times, [one, many]]) => (times === 1 ? `1 ${one}` : `${times} ${many}`));
  if (!parts.length) return el("p", { class: "said" }, "The printed statements don't cover these values.");
  const warns = findings.some((one) => directionOf(one) === "overclaims");
  return el("p", { class: warns ? "said notice bad" : "said" }, `Of the printed statements that cover these values, ${parts.join("; ")}.`);
}

/** How many of them print another number than holds, in neutral words: for a summary that nobody has opened yet. */
export function counted(findings) {
  const covered = findings.filter((one) => directionOf(one) !== "does_not_apply");
  const other = covered.filter((one) => directionOf(one) !== "equal").length;
  if (!covered.length) return "";
  return other ? `: ${other} of ${covered.length} differ` : `: ${covered.length === 1 ? "it agrees" : `all ${covered.length} agree`}`;
}

/** Statements that promise too much come first. */
export function ordered(findings) {
  const ranks = ["overclaims", "loose", "differs", "equal", "does_not_apply"];
  return [...findings].sort((one, other) => ranks.indexOf(directionOf(one)) - ranks.indexOf(directionOf(other)));
}
