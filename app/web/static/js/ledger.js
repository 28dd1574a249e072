// One budget: what is used and what is left, its reservations, its history, and what else would fit.

import { Problem, announce, api, bound, byId, el, moment, number, refusal } from "./core.js";
import { startProjection } from "./ledger-projection.js";
import { approval, showRules } from "./ledger-rules.js";
import { bar, currency, definedLimit, spendWords, state } from "./ledgers-common.js";
import { showReport } from "./ledger-verification.js";
import { explain } from "./meaning.js";
import { say } from "./submit-fields.js";
import { neighbourWords, spelled } from "./terms.js";

const id = byId("ledger").dataset.ledger;
const base = `/v1/ledgers/${id}`;
const EVERY = 5000;
const USUAL_DELTA = 1e-5; // for budgets that have none

let ledger = null;
let timer;
let olderReservations = null;
let laterEntries = null;

/** Asks, and shows a refusal instead of an answer. Returns whether there was one. */
async function asked(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 404) gone();
    else byId("trouble").replaceChildren(refusal(error));
    return error.status === 0 || error.status === 429 || error.status >= 500;
  }
}

function gone() {
  ledger = null;
  byId("title").textContent = "There is no such budget";
  byId("trouble").replaceChildren(
    el("p", { class: "notice bad", role: "alert" }, "There is no budget with this id that your key may see. It may belong to another tenant or another service. ", el("a", { href: "/ledgers" }, "See your budgets.")),
  );
}

function uses(balance) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Balance" },
    el(
      "table",
      { class: "stacked" },
      el("thead", {}, el("tr", {}, ...["Measured in", "Limit", "Spent", "Reserved", "Left", "Used"].map((name, place) => el("th", { scope: "col", class: place > 0 && place < 5 ? "number" : null }, name)))),
      el("tbody", {}, ...balance.limits.filter((use) => number(use.limit) > 0).map(use)),
    ),
  );
}

function use(one) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, one.quantity),
    el("td", { class: "number", "data-name": "Limit" }, bound(one.limit, { down: true })),
    el("td", { class: "number", "data-name": "Spent" }, bound(one.committed)),
    el("td", { class: "number", "data-name": "Reserved" }, bound(one.reserved)),
    el("td", { class: "number", "data-name": "Left" }, bound(one.remaining, { down: true })),
    el("td", { class: "wide" }, bar(one)),
  );
}

function balance(of, whose) {
  const { kind } = ledger.definition.budget;
  const words = [`${whose}${of.commitments === 1 ? "1 reservation was" : `${of.commitments} reservations were`} spent; ${of.open_reservations} ${of.open_reservations === 1 ? "is" : "are"} open.`];
  if (kind === "gdp") words.push("Spends of mu add up as squares: 0.6 and 0.8 make 1. The bar shows squares.");
  if (kind === "rdp_target") words.push("At least one of these orders has to stay within its limit; the guarantee rests on the best one.");
  byId("balance").replaceChildren(el("p", {}, words.join(" ")), el("ul", { class: "legend" }, el("li", { class: "series-1" }, "spent"), el("li", { class: "series-2" }, "reserved")), uses(of));
}

function head() {
  const { definition } = ledger;
  byId("title").textContent = definition.name;
  byId("state").replaceChildren(state(ledger));
  const neighbours = neighbourWords(definition.adjacency, definition.unit).choice;
  byId("about").textContent = `at most ${definedLimit(definition)}; protects one ${spelled(definition.unit)} (${neighbours}); created ${moment(ledger.created)}`;
  showRules(ledger);
  const named = currency(definition.budget.kind);
  byId("currency").textContent = named ? named[0] : "mu";
  byId("by-recipe").hidden = definition.protects !== "data_set";
  if (ledger.balance) balance(ledger.balance, "");
  else {
    byId("user-form").hidden = false;
    if (!byId("balance").children.length) byId("balance").replaceChildren(el("p", {}, `Each user has a balance; ${ledger.users} have been charged so far.`));
  }
  byId("balance").setAttribute("aria-busy", "false");
  byId("meaning-part").hidden = definition.budget.kind === "rdp";
}

/** The limit as an epsilon and a delta, once: it never changes. */
async function limit() {
  if (!byId("meaning-part").open || byId("limit-as").textContent) return;
  const { budget, adjacency, unit, renews_after_days: days } = ledger.definition;
  const named = currency(budget.kind);
  let [epsilon, delta] = [budget.epsilon, budget.kind === "pure" ? 0 : (budget.delta ?? USUAL_DELTA)];
  if (budget.kind === "gdp" || budget.kind === "zcdp") {
    const given = { kind: budget.kind, [named[1]]: budget[named[1]] };
    const answer = await api("/v1/conversions", { method: "POST", body: { given, to: [{ kind: "approximate", delta }] } });
    epsilon = answer.conversions[0].value;
  }
  byId("limit-as").textContent = `epsilon at most ${bound(epsilon)} at delta ${delta}${days ? ", for the releases of one period" : ""}`;
  await explain(byId("meaning"), { epsilon, delta, adjacency, unit, units: null });
}

function reservation(one) {
  const lapses = one.expires ? `${moment(one.expires)}: then ${one.then}` : "never";
  const colour = { reserved: "soft", committed: "good", released: "soft", lapsed: "warn" }[one.state];
  return el(
    "tr",
    {},
    el("th", { scope: "row", class: "mono" }, one.id.slice(0, 12)),
    el("td", { "data-name": "State" }, el("span", { class: `tag ${colour}` }, one.state), ...approval(ledger, one, approve)),
    el("td", { "data-name": "Spend" }, one.purpose ? `${one.purpose}: ` : "", spendWords(one.spend), one.released ? `; released: ${spendWords(one.released)}` : ""),
    el("td", { "data-name": "Job" }, one.job ? el("a", { href: `/jobs/${one.job}` }, one.job.slice(0, 12)) : "none"),
    el("td", { "data-name": "Lapses" }, one.state === "reserved" ? lapses : "settled"),
  );
}

/** Only another key than the one that reserved may: the service says so. */
const approve = (reservation) =>
  asked(async () => {
    const { job } = await api(`${base}/reservations/${reservation}/approve`, { method: "POST" });
    announce(`The reservation is approved${job ? ", and its job goes on" : ""}`);
    await look();
  });

async function reservations(cursor = null) {
  const query = new URLSearchParams({ limit: "20" });
  if (byId("which").value) query.set("state", byId("which").value);
  if (cursor !== null) query.set("cursor", cursor);
  const page = await api(`${base}/reservations?${query}`);
  const rows = page.reservations.map(reservation);
  if (cursor === null) byId("reservations").replaceChildren(...rows);
  else byId("reservations").append(...rows);
  const unreadable = page.unreadable.map((entry) => el("li", {}, `Entry ${entry} can't be read. Somebody changed what is stored; what it says of a reservation isn't shown. Check the whole history.`));
  if (cursor === null) byId("unreadable").replaceChildren(...unreadable);
  else byId("unreadable").append(...unreadable);
  byId("unreadable").hidden = !byId("unreadable").children.length;
  olderReservations = page.next;
  byId("more-reservations").hidden = page.next === null;
  byId("no-reservations").hidden = byId("reservations").rows.length > 0;
}

function act(given) {
  switch (given.kind) {
    case "opened":
      return "created";
    case "reserved":
      return `reserved ${given.reservation.slice(0, 12)}: ${spendWords(given.spend)}`;
    case "committed":
      return `${given.reservation.slice(0, 12)} is spent${given.released ? `; released: ${spendWords(given.released)}` : " in full"}`;
    case "released":
      return `${given.reservation.slice(0, 12)} is free again: nothing was released`;
    case "lapsed":
      return `${given.reservation.slice(0, 12)} lapsed: ${given.then}`;
    case "approved":
      return `${given.reservation.slice(0, 12)} was approved by another key`;
    case "unreadable":
      return "can't be read: somebody changed what is stored";
    case "renewed":
      return `period ${given.period + 1} began: what was spent before no longer counts towards its limit`;
    default:
      return given.kind;
  }
}

function entry(one) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, String(one.number)),
    el("td", { "data-name": "Time" }, moment(one.time)),
    el("td", { "data-name": "Entry" }, act(one.act)),
    el("td", { class: "mono digest", "data-name": "Digest" }, one.sha256.slice(0, 12)),
  );
}

async function entries(cursor = 0) {
  const page = await api(`${base}/entries?limit=100&cursor=${cursor}`);
  const rows = page.entries.map(entry);
  if (cursor === 0) byId("entries").replaceChildren(...rows);
  else byId("entries").append(...rows);
  laterEntries = page.next;
  byId("more-entries").hidden = page.next === null;
}

/** Redraws everything if there is a new entry, and nothing otherwise. */
async function look() {
  clearTimeout(timer);
  const goOn = await asked(async () => {
    const found = await api(base);
    const changed = found.head.sha256 !== ledger?.head.sha256;
    ledger = found;
    byId("trouble").replaceChildren();
    if (!changed) return;
    head();
    await Promise.all([reservations(), entries()]);
  });
  if (goOn) timer = setTimeout(look, EVERY);
}

startProjection(base, () => ledger);

byId("user-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = byId("user").value.trim();
  say("user", "");
  if (!/^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$/.test(name)) return say("user", "Only letters, digits and . _ : @ -, at most 128 characters.");
  await asked(async () => balance(await api(`${base}/users/${encodeURIComponent(name)}`), `Of ${name}: `));
});

byId("verify").addEventListener("click", () => asked(async () => showReport(await api(`${base}/verification`))));

byId("meaning-part").addEventListener("toggle", () => asked(limit));
byId("which").addEventListener("change", () => asked(() => reservations()));
byId("more-reservations").addEventListener("click", () => asked(() => reservations(olderReservations)));
byId("more-entries").addEventListener("click", () => asked(() => entries(laterEntries)));
document.addEventListener("zetadp-key", look);
look();
