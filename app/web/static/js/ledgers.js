// The list of budgets, and the form that makes one.

import { Problem, announce, api, byId, el, moment, percent, refusal } from "./core.js";
import { bar, definedLimit, state, taken, telling } from "./ledgers-common.js";

const LABELS = { gdp: "Limit: mu", rdp_target: "Limit: epsilon", zcdp: "Limit: rho", pure: "Limit: epsilon" };
const FIELDS = { gdp: "mu", rdp_target: "epsilon", zcdp: "rho", pure: "epsilon" };
/** The element of this page for each field of the service. */
const PLACES = {
  name: "name",
  unit: "unit",
  "budget.mu": "limit",
  "budget.rho": "limit",
  "budget.epsilon": "limit",
  "budget.delta": "delta",
  renews_after_days: "days",
  "rules.purposes": "purposes",
  "rules.quotas": "quotas",
};

let next = null;

function row(ledger) {
  const { definition } = ledger;
  const use = telling(ledger);
  const shown = use ? [bar(use), ` about ${percent(Math.ceil(taken(use) * 1000) / 1000)}`] : [ledger.users === null ? "nothing" : `per user; ${ledger.users} charged so far`];
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: `/ledgers/${ledger.id}` }, definition.name)),
    el("td", { "data-name": "Limit" }, definedLimit(definition)),
    el("td", { "data-name": "Used" }, ...shown),
    el("td", { "data-name": "Protects" }, `${definition.protects === "each_user" ? "each user, by " : ""}${definition.unit.replaceAll("_", " ")}`),
    el("td", { "data-name": "State" }, state(ledger)),
    el("td", { "data-name": "Created" }, moment(ledger.created)),
  );
}

/** A budget of which the service can't use what is stored. */
function damagedRow(id) {
  const said = "What is stored of it can't be used. Check its history on its page.";
  return el("tr", {}, el("th", { scope: "row" }, el("a", { href: `/ledgers/${id}` }, el("span", { class: "mono" }, id.slice(0, 12)))), el("td", { colspan: "5" }, el("span", { class: "tag bad" }, "damaged"), ` ${said}`));
}

async function show(cursor = null) {
  try {
    const page = await api(`/v1/ledgers?limit=50${cursor ? `&cursor=${cursor}` : ""}`);
    const rows = [...page.ledgers.map(row), ...page.damaged.map(damagedRow)];
    if (cursor) byId("list").append(...rows);
    else byId("list").replaceChildren(...rows);
    next = page.next;
    byId("older").hidden = next === null;
    byId("none").hidden = byId("list").rows.length > 0;
    byId("list").setAttribute("aria-busy", "false");
    byId("trouble").replaceChildren();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
}

function kind() {
  byId("limit-label").textContent = LABELS[byId("kind").value];
  byId("delta-field").hidden = byId("kind").value !== "rdp_target";
}

function say(id, text) {
  byId(`${id}-problem`).textContent = text;
  if (text) byId(id).setAttribute("aria-invalid", "true");
  else byId(id).removeAttribute("aria-invalid");
}

/** The number in a field, or null if it holds none: then a message is shown next to it. */
function read(id) {
  const text = byId(id).value.trim();
  const value = Number(text);
  if (text === "") say(id, "Enter a number.");
  else if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || text.length > 40) say(id, "Enter a number, such as 1.5 or 1e-5.");
  else if (!Number.isFinite(value)) say(id, "This number is too large.");
  else return value;
  return null;
}

/** The days of a period: null for a budget that is never renewed, undefined if a message is shown. */
function days() {
  const text = byId("days").value.trim();
  if (text === "") return null;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  say("days", "Enter a whole number of days, or nothing.");
  return undefined;
}

/** The quotas: null without any, undefined if a message is shown. */
function quotas() {
  const lines = byId("quotas").value.split("\n").map((line) => line.trim());
  const found = [];
  for (const [place, line] of lines.entries()) {
    if (line === "") continue;
    const parts = /^(\S+)\s+(\d{1,9}\.?\d{0,9})\s*%?$/.exec(line);
    if (!parts) {
      say("quotas", `Line ${place + 1}: enter a key's id and a number of percent.`);
      return undefined;
    }
    found.push({ key: parts[1], share: Number(parts[2]) / 100 });
  }
  return found.length ? found : null;
}

/** What of a definition is left out where it says nothing; null if a message is shown. */
function ruling() {
  const purposes = byId("purposes").value.split(",").map((one) => one.trim()).filter(Boolean);
  const [renews, shares, approval] = [days(), quotas(), byId("approval").value];
  if (renews === undefined || shares === undefined) return null;
  const rules = { ...(purposes.length ? { purposes } : {}), ...(shares ? { quotas: shares } : {}), ...(approval === "none" ? {} : { approval }) };
  return { ...(renews === null ? {} : { renews_after_days: renews }), ...(Object.keys(rules).length ? { rules } : {}) };
}

function definition() {
  const chosen = byId("kind").value;
  const limit = read("limit");
  const delta = chosen === "rdp_target" ? read("delta") : null;
  const ruled = ruling();
  if (limit === null || ruled === null || (chosen === "rdp_target" && delta === null)) return null;
  const budget = { kind: chosen, [FIELDS[chosen]]: limit };
  if (chosen === "rdp_target") Object.assign(budget, { delta, orders: byId("form").dataset.orders.split(",").map(Number) });
  return { name: byId("name").value.trim(), budget, adjacency: byId("adjacency").value, unit: byId("unit").value.trim(), protects: byId("protects").value, ...ruled };
}

/** Shows the first field with a message, also where it is folded away. */
function focusWrong() {
  const wrong = document.querySelector('#form [aria-invalid="true"]');
  if (wrong?.closest("#ruling")) byId("ruling").open = true;
  wrong?.focus();
}

function place(problem) {
  const left = problem.fields.filter((one) => {
    const [field, place] = one.field.split(/[[\]]/); // of a list's entry, counted from 0
    const id = PLACES[Object.keys(PLACES).find((name) => field === name || field.endsWith(`.${name.split(".").pop()}`))];
    if (!id) return true;
    say(id, place === undefined ? one.message : `Entry ${Number(place) + 1}: ${one.message}`);
    return false;
  });
  if (left.length || !problem.fields.length) byId("trouble").replaceChildren(refusal(problem));
  focusWrong();
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  for (const id of new Set(Object.values(PLACES))) say(id, "");
  byId("trouble").replaceChildren();
  const body = definition();
  if (body === null) {
    focusWrong();
    return;
  }
  byId("send").disabled = true;
  try {
    const made = await api("/v1/ledgers", { method: "POST", body });
    announce(`${made.definition.name} was created`);
    location.assign(`/ledgers/${made.id}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    place(error);
  } finally {
    byId("send").disabled = false;
  }
});

byId("kind").addEventListener("change", kind);
byId("older").addEventListener("click", () => show(next));
document.addEventListener("zetadp-key", () => show());
kind();
show();
