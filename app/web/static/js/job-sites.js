// The sites of a federation over a network: who answered the last round, who is missing, and what each one's ledger has charged.

import { byId, el } from "./core.js";

/** Why a site refuses, in words. */
const REFUSALS = {
  not_agreed: "its operator hasn't signed this proposal",
  other_code: "it runs other code than was agreed on",
  budget: "its own budget admits no further round",
  spent_round: "its answer was lost, and it draws no second noise for a round",
  protocol: "the step isn't the next one of a secure sum, or what came with it isn't right",
  failed: "an error at the site; the round is charged",
};

/** Whether a site took part in the last round, in a word with its colour, and why not, as far as it said. */
function standing({ answered, refusal }) {
  if (answered) return { word: "answered", colour: "good", why: "" };
  if (!refusal) return { word: "missing", colour: "warn", why: "" };
  return { word: "refuses", colour: "warn", why: `: ${REFUSALS[refusal] || refusal.replaceAll("_", " ")}` };
}

function answeredLine(told) {
  return `round ${told.round} of ${told.rounds}: ${told.sites.filter((one) => one.answered).length} of ${told.sites.length} sites answered`;
}

/** What stands in the history. */
export function sitesLine(told) {
  const words = told.sites.filter((one) => !one.answered).map((one) => (one.refusal ? `${one.name} refuses${standing(one).why}` : `${one.name} is missing`));
  return [answeredLine(told), ...words].join("; ");
}

function row(one, rounds) {
  const { word, colour, why } = standing(one);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, one.name),
    el("td", { "data-name": "Last round" }, el("span", { class: `tag ${colour}` }, word), why),
    el("td", { class: "number", "data-name": "Answers that counted" }, `${one.arrived} of ${rounds}`),
    el("td", { class: "number", "data-name": "Charged by its ledger" }, one.charged === undefined ? "not known" : `${one.charged} of ${rounds}`),
  );
}

/** Draws the table. */
export function showSites(told) {
  byId("sites-part").hidden = false;
  const line = answeredLine(told);
  byId("sites-round").textContent = `${line[0].toUpperCase()}${line.slice(1)}. Each site's budget is its own, and only it knows what is left.`;
  byId("sites").replaceChildren(...told.sites.map((one) => row(one, told.rounds)));
}

/** Another job is shown, or the same one from its start. */
export function forgetSites() {
  byId("sites-part").hidden = true;
  byId("sites").replaceChildren();
}
