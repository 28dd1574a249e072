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

/** Whether a site took part in the last round, and if not why, as far as it said. */
export function standing(site) {
  if (site.answered) return "answered";
  return site.refusal ? `refuses: ${REFUSALS[site.refusal] || site.refusal.replaceAll("_", " ")}` : "missing";
}

/** What stands in the history. */
export function sitesLine(told) {
  const missing = told.sites.filter((one) => !one.answered);
  const words = missing.map((one) => `${one.name} ${standing(one)}`).join("; ");
  return `round ${told.round} of ${told.rounds}: ${told.sites.length - missing.length} of ${told.sites.length} sites answered${words ? `; ${words}` : ""}`;
}

/** Draws the table. */
export function showSites(told) {
  byId("sites-part").hidden = false;
  byId("sites-round").textContent = `${sitesLine(told)}. Each site's budget is its own, and only it knows what is left.`;
  byId("sites").replaceChildren(
    ...told.sites.map((one) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, one.name),
        el("td", { "data-name": "Last round" }, standing(one)),
        el("td", { class: "number", "data-name": "Answers that counted" }, `${one.arrived} of ${told.rounds}`),
        el("td", { class: "number", "data-name": "Charged by its ledger" }, one.charged === undefined ? "not known" : `${one.charged} of ${told.rounds}`),
      ),
    ),
  );
}

/** Another job is shown, or the same one from its start. */
export function forgetSites() {
  byId("sites-part").hidden = true;
  byId("sites").replaceChildren();
}
