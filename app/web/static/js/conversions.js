// One notion of privacy in terms of all others, answered while you type.

import { announce, bound, byId, el, number } from "./core.js";
import { exactly } from "./derivation.js";
import { gathered } from "./form.js";
import { keepAsking } from "./keep-asking.js";

const form = byId("form");
const fields = [...form.querySelectorAll("[data-path]")];
const kind = byId("kind");
const COLOURS = { exact: "good", bound: "soft", impossible: "warn" };

const given = () => fields.filter((input) => input.dataset.path.startsWith(`${kind.value}.`));
const at = () => fields.filter((input) => input.dataset.path.startsWith("at."));

function body() {
  const points = gathered(at()).at;
  return {
    given: { kind: kind.value, ...gathered(given())[kind.value] },
    to: [
      { kind: "pure" },
      { kind: "approximate", delta: points.delta },
      { kind: "approximate", epsilon: points.epsilon },
      { kind: "zcdp" },
      { kind: "rdp", order: points.order },
      { kind: "gdp" },
      { kind: "trade_off", alpha: points.alpha },
      { kind: "advantage" },
    ],
  };
}

function what({ to, quantity }) {
  const wheres = { approximate: to.delta === null ? `at epsilon ${to.epsilon}` : `at delta ${to.delta}`, rdp: `of order ${to.order}`, trade_off: `at false positives ${to.alpha}`, pure: "at delta 0" };
  const names = { rdp: "Renyi divergence", gdp: "mu", zcdp: "rho", trade_off: "false negatives", advantage: "attacker's advantage" };
  return `${names[to.kind] || quantity} ${wheres[to.kind] || ""}`.trim();
}

/** Rounded away from the promise: what must be small upwards, what must be large downwards. */
function value(found) {
  return bound(found.value, { digits: 6, down: found.rounding === "down" });
}

function show(answer) {
  const epsilon = answer.conversions[1];
  const said = Number.isFinite(number(epsilon.value)) ? `epsilon at most ${value(epsilon)} at delta ${epsilon.to.delta}` : `no finite epsilon at delta ${epsilon.to.delta}`;
  byId("headline").textContent = said;
  byId("sentences").replaceChildren(el("p", {}, "Holds only if the guarantee that you entered holds for all neighbours, in both orders. The table lists what else follows from it."));
  const head = ["What follows", "Value", "Status", "Why"];
  const rows = answer.conversions.map((found) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, what(found)),
      el("td", { class: "mono", "data-name": "Value" }, value(found)),
      el("td", { "data-name": "Status" }, el("span", { class: `tag ${COLOURS[found.status]}` }, found.status)),
      el("td", { "data-name": "Why" }, found.why, el("details", {}, el("summary", {}, "Formula"), ...details(found))),
    ),
  );
  byId("rest").replaceChildren(
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What follows" }, el("table", { class: "stacked findings" }, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows))),
  );
  announce(said);
}

function details(found) {
  const lines = [found.formula, found.attained_by && `Attained by ${found.attained_by}.`, found.counterexample && `Shown by ${found.counterexample}.`, `Source: ${found.source}.`];
  const steps = found.derivation.map((step) => `${step.symbol} = ${exactly(step)} (${step.formula})`);
  return [...lines.filter(Boolean), ...steps].map((line) => el("p", {}, line));
}

function inputOf(path) {
  const name = path.split(".").pop();
  return path.startsWith("given") ? given().find((input) => input.dataset.path.endsWith(`.${name}`)) : at().find((input) => input.dataset.path.endsWith(`.${name}`));
}

function arrange() {
  for (const part of form.querySelectorAll("[data-of]")) part.hidden = part.dataset.of !== kind.value;
}

keepAsking({ form, path: "/v1/conversions", fields, body, show, inputOf, arrange });
