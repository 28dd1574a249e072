// A derivation as a table: every number in full, so that one can redo it by hand and no rounding makes it promise more.

import { el } from "./core.js";

const HEAD = ["Symbol", "Value", "Formula", "Source"];

/** A step's value, exactly as the service sent it. */
export const exactly = (step) => String(step.value);

/** A step in one line. */
export const inLine = (step) => `${step.symbol} = ${exactly(step)} (${step.formula}; ${step.source})`;

/** The rows of a table; a source that is a proof of ours leads to it. */
export function rows(steps) {
  return steps.map((step) =>
    el("tr", {}, el("th", { scope: "row" }, step.symbol), el("td", { class: "mono", "data-name": "Value" }, exactly(step)), el("td", { "data-name": "Formula" }, step.formula), el("td", { "data-name": "Source" }, ...linked(step.source))),
  );
}

/** The whole table. */
export function derivation(steps) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Derivation" }, el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ...HEAD.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows(steps))));
}

function linked(source) {
  const parts = source.split(/((?:accountants\/|mechanisms\/)?proofs\/[a-z_]+\.md)/);
  return parts.map((part, place) => (place % 2 ? el("a", { href: `/proofs/${part.replace(/^.*proofs\//, "").replace(".md", "")}` }, part) : part));
}
