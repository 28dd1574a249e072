// What a budget's rules and periods are, in words: who may spend, what for, when it is free again and what that means for data that stay.

import { bound, byId, el, moment } from "./core.js";

/** How a guarantee over k periods compares with that of one. */
const OVER = { gdp: "mu is sqrt(k) times as large", zcdp: "rho is k times as large", pure: "epsilon is k times as large" };
const OF_DIVERGENCES = "Rényi divergences are k times as large";

function periodWords({ definition: { budget, renews_after_days: days }, renews_at: next }) {
  const when = days === 1 ? "every day" : `every ${days} days`;
  return [
    `The whole budget is free again ${when}, next on ${moment(next)}. What is still reserved then counts in the next period too.`,
    `The limit is for the releases of one period. Somebody whose data stay for k periods is protected by k budgets together: ${OVER[budget.kind] || OF_DIVERGENCES}.`,
  ];
}

function quotaWords({ key, share }) {
  return el("li", {}, "Key ", el("span", { class: "mono" }, key), `: at most ${bound(100 * share, { digits: 6 })} % of each limit.`);
}

function ruleWords({ purposes, quotas, approval }) {
  return [
    purposes ? el("li", {}, `Each reservation names one of these purposes: ${purposes.join(", ")}.`) : null,
    quotas ? el("li", {}, "Only these keys reserve, each up to its share. Together they stay within the budget.", el("ul", {}, ...quotas.map(quotaWords))) : null,
    approval === "second_key" ? el("li", {}, "A key other than the one that reserved approves a reservation before it can be committed. Nothing of it may be released before: of trainings the service sees to that, of other releases it can't.") : null,
    el("li", {}, `A training counts for the key that sends it, or that runs it again${approval === "second_key" ? ", and waits before it begins until its reservation is approved" : ""}.`),
  ];
}

/** Fills the page's section; it isn't there for a budget without rules that is never renewed. */
export function showRules(ledger) {
  const { rules, renews_after_days: days } = ledger.definition;
  byId("rules-part").hidden = !rules && !days;
  const lines = [...(days ? periodWords(ledger).map((text) => el("li", {}, text)) : []), ...(rules ? ruleWords(rules) : [])];
  byId("rules").replaceChildren(...lines.filter(Boolean));
  byId("rules-refuse").hidden = !rules;
}

/** Whether a reservation was approved, where that is asked for, and a button to do so while it isn't. */
export function approval({ definition: { rules } }, { id, state, approved_by: by }, approve) {
  if (by) return [` approved by key ${by}`];
  if (rules?.approval !== "second_key" || state !== "reserved") return [];
  const said = `Approve reservation ${id.slice(0, 12)}`;
  return [" not approved yet ", el("button", { type: "button", class: "quiet noprint", "aria-label": said, on: { click: () => approve(id) } }, "Approve")];
}
