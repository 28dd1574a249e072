// How many more spends of a kind fit into a budget: an amount, a job's training, or a training from a recipe or a job's JSON not sent yet.

import { Problem, api, bound, byId, el } from "./core.js";
import { currency, telling } from "./ledgers-common.js";
import { parsed, say } from "./submit-fields.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const FIELDS = ["amount", "spec", "user"];

function spend(definition, text) {
  const value = Number(text);
  if (text.length > 40 || !NUMBER.test(text)) return "Enter a number, such as 0.1 or 1e-5.";
  if (!Number.isFinite(value)) return "This number is too large.";
  const named = currency(definition.budget.kind);
  const [, name] = named || ["mu", "mu"];
  return { kind: named ? definition.budget.kind : "gdp", [name]: value };
}

function words(ledger, found) {
  if (found.separately === null) return "They cost nothing: as many as you like.";
  if (found.separately === 0) return "No more spends of this kind fit at the moment.";
  const one = found.separately === 1 ? "One more spend of this kind fits" : `${found.separately} more spends of this kind fit`;
  const together = found.together !== null && found.together !== found.separately ? ` In a single reservation: ${found.together}.` : "";
  const after = telling({ definition: ledger.definition, balance: found.after });
  const left = after ? ` One of them would leave ${bound(after.remaining, { down: true })} of ${bound(after.limit, { down: true })} in ${after.quantity}.` : "";
  return `${one} at the moment.${together}${left} Nothing was reserved.`;
}

function chosen() {
  return byId("projection").elements.by.value;
}

/** The request, or null if a field's value can't be used: then a message is shown next to it. */
function asked(ledger) {
  const text = byId("amount").value.trim();
  const body = {};
  if (chosen() === "job") {
    if (!/^[0-9a-f]{32}$/.test(text)) say("amount", "A job's id has 32 characters, digits and the letters a to f; the job's page shows it.");
    body.job = text;
  } else if (chosen() === "spec") {
    const job = parsed(byId("spec").value);
    if (job === null) say("spec", "This isn't a job's JSON: choose a recipe, or paste a job with a \"spec\".");
    body.spec = job?.spec;
  } else {
    body.spend = spend(ledger.definition, text);
    if (typeof body.spend === "string") say("amount", body.spend);
  }
  if (ledger.definition.protects === "each_user") {
    body.user = byId("user").value.trim();
    if (body.user === "") say("user", "Enter a user.");
  }
  const wrong = FIELDS.find((id) => byId(id).getAttribute("aria-invalid") === "true");
  if (wrong) byId(wrong).focus();
  return wrong ? null : body;
}

async function workOut(base, ledger) {
  for (const id of FIELDS) say(id, "");
  byId("fits").textContent = "";
  const body = asked(ledger);
  if (body === null) return;
  byId("projection").setAttribute("aria-busy", "true");
  try {
    byId("fits").textContent = words(ledger, await api(`${base}/projections`, { method: "POST", body }));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const place = chosen() === "spec" ? "spec" : "amount";
    say(place, error.fields.length ? error.fields.map((one) => (place === "spec" ? `${one.field.replace(/^body\./, "")}: ${one.message}` : one.message)).join("; ") : error.message);
    byId(place).focus();
  } finally {
    byId("projection").removeAttribute("aria-busy");
  }
}

async function recipes() {
  if (byId("recipe").options.length > 1) return;
  try {
    const found = await api("/v1/recipes");
    byId("recipe").append(...found.map((one) => el("option", { value: one.name, disabled: !one.data.available }, `${one.title} (${one.name})${one.data.available ? "" : ": its data aren't available"}`)));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    say("spec", error.message);
  }
}

/** The form, for the budget that `current` gives; null where there is none yet. */
export function startProjection(base, current) {
  byId("projection").addEventListener("submit", (event) => {
    event.preventDefault();
    if (current()) workOut(base, current());
  });
  for (const radio of document.querySelectorAll("#projection [name=by]")) {
    radio.addEventListener("change", () => {
      const by = chosen();
      byId("amount-label").textContent = by === "job" ? "Job id" : "Amount";
      byId("amount-field").hidden = by === "spec";
      byId("recipe-field").hidden = by !== "spec";
      byId("spec-field").hidden = by !== "spec";
      for (const id of FIELDS) say(id, "");
      byId("fits").textContent = "";
      if (by === "spec") recipes();
    });
  }
  byId("recipe").addEventListener("change", async () => {
    const name = byId("recipe").value;
    if (!name) return;
    try {
      byId("spec").value = JSON.stringify(await api(`/v1/recipes/${encodeURIComponent(name)}`), null, 2);
      say("spec", "");
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      say("spec", error.message);
    }
  });
}
