// A job from a recipe or from a spec that somebody writes: checked and planned by the service before anything starts.

import { Problem, api, bound, byId, el, key, later, refusal, request } from "./core.js";
import { algorithmName, privacyOf } from "./jobs-common.js";
import { bar, definedLimit, telling } from "./ledgers-common.js";
import { NAMES, fill, parsed, say, write } from "./submit-fields.js";
import { editGuarantee, expected, showJob, showRecipes } from "./submit-guide.js";
import { showModel } from "./submit-layers.js";
import { factsWords, offerUploads } from "./uploading.js";
import { watchWorkers } from "./workers.js";

const place = byId("body");
const PAUSE = 700;
/** The element of this page for each field of the service; all others are in the JSON. */
const PLACES = { "spec.privacy.epsilon": "epsilon", labels: "labels", priority: "priority", timeout_seconds: "timeout", ledger: "ledger", purpose: "purpose", "spec.data": "data-set" };

let found = { recipes: [], algorithms: [], ledgers: [], dataSets: [] };
let taken = null; // the recipe that is filled in, with its data as JSON
let replaced = null; // what stood in the job where a data set of one's own stands now: data, unit
let asking = new AbortController();

/** Asks, and shows a refusal instead of an answer. */
async function asked(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
}

/** What a key may see; nothing where it may not. */
async function own(path, name) {
  if (!key.get()) return [];
  try {
    return (await api(path))[name];
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return [];
  }
}

function options(id, made) {
  const kept = byId(id).value;
  byId(id).replaceChildren(byId(id).options[0], ...made);
  byId(id).value = made.some((one) => one.value === kept) ? kept : "";
}

const dataOption = (one) => el("option", { value: one.id }, `${one.definition.name}: ${one.facts.training_records.toLocaleString("en")} records to train on`);

const load = () =>
  asked(async () => {
    const [recipes, algorithms, ledgers, dataSets] = await Promise.all([api("/v1/recipes"), api("/v1/algorithms"), own("/v1/ledgers?state=open&limit=200", "ledgers"), own("/v1/data-sets?limit=200", "data_sets")]);
    const fitting = ledgers.filter((one) => one.definition.protects === "data_set");
    found = { recipes, algorithms, ledgers: fitting, dataSets };
    showRecipes(recipes, take);
    options("algorithm", algorithms.map((one) => el("option", { value: one.name }, algorithmName(one.name))));
    options("ledger", fitting.map((one) => el("option", { value: one.id }, `${one.definition.name}: at most ${definedLimit(one.definition)}`)));
    options("data-set", dataSets.filter((one) => one.state === "ready").map(dataOption));
    byId("form").setAttribute("aria-busy", "false");
    reread();
  });

/** How many units the job's data set has, of what its guarantee protects; null where nobody has said so. */
function unitsOf(job) {
  const { data } = job.spec;
  const own = data?.kind === "uploaded" ? found.dataSets.find((one) => one.id === data.data_set)?.facts : undefined;
  const facts = own ?? (taken?.data === JSON.stringify(data) ? taken.declared : undefined);
  const unit = privacyOf(job)?.unit;
  if (!facts || !unit) return null;
  if (unit === facts.unit) return facts.training_records;
  return unit === facts.user_unit ? facts.users : null;
}

/** A guarantee can only be about what the data are: where it names something else than the chosen data set, its rows. */
function adopt(job) {
  const facts = found.dataSets.find((one) => one.id === job.spec.data?.data_set)?.facts;
  const privacy = privacyOf(job);
  if (facts && privacy && ![facts.unit, facts.user_unit].includes(privacy.unit)) privacy.unit = facts.unit;
}

/** What a budget's rules ask of a training: one of the purposes that they name, and an approval. */
function showRules(id) {
  const rules = found.ledgers.find((one) => one.id === id)?.definition.rules;
  const named = rules?.purposes ?? [];
  const waits = rules?.approval === "second_key" ? " It then waits until another key approves that, and goes on by itself." : "";
  byId("ledger-help").textContent = `The job reserves its cost from this budget before it starts.${waits}`;
  options("purpose", named.map((one) => el("option", { value: one }, one)));
  byId("purpose-field").hidden = !named.length;
}

/** Keeps the data that come with a job: they can be chosen again after an uploaded data set has taken their place. */
function noteData(job) {
  if (job.spec.data?.kind !== "uploaded") replaced = { data: structuredClone(job.spec.data), unit: privacyOf(job)?.unit };
}

/** Data that are chosen stay so, whatever recipe is filled in. */
function keepData(job) {
  noteData(job);
  if (!found.dataSets.some((one) => one.id === byId("data-set").value)) return;
  write("data-set", job);
  adopt(job);
}

/** The job's own data again, and what they are; where it came with none, the choice goes back and says why. */
function restoreData(job) {
  if (job.spec.data?.kind !== "uploaded") return;
  if (replaced === null) {
    say("data-set", "This job came with an uploaded data set: choose a recipe, or write other data into the JSON.");
    byId("data-set").value = job.spec.data.data_set;
    return;
  }
  job.spec.data = structuredClone(replaced.data);
  const privacy = privacyOf(job);
  if (privacy && replaced.unit) privacy.unit = replaced.unit;
}

/** All of a training but how private it has to be: two that agree in it are the same recipe at two epsilons. */
const butEpsilon = ({ spec }) => JSON.stringify({ ...spec, privacy: { ...spec.privacy, epsilon: null } });

/** What the recipe that is filled in reached by epsilon; nothing once it was changed. */
const measuredOf = (job) => (taken !== null && job !== null && butEpsilon(job) === taken.asked ? taken.measured : []);

/** Shows the job that stands in the JSON. */
function show(job) {
  showJob(job, job && unitsOf(job));
  const data = job ? job.spec.data : { kind: "uploaded", data_set: byId("data-set").value };
  const own = data?.kind === "uploaded" ? found.dataSets.find((one) => one.id === data.data_set) : undefined;
  byId("data-facts").textContent = own ? factsWords(own.facts) : "";
  showModel(job, rewrite);
  byId("reaches").textContent = expected(measuredOf(job), privacyOf(job)?.epsilon);
}

/** The fields from the JSON; they wait while it can't be read. */
function reread() {
  const job = parsed(place.value);
  for (const name of ["beside", "beside-guarantee"]) byId(name).disabled = job === null;
  // Data can be chosen before there is a job, but not for one that can't be read.
  byId("beside-data").disabled = job === null && place.value.trim() !== "";
  if (job !== null) {
    noteData(job);
    showRules(job.ledger);
    fill(job);
  }
  show(job);
  cost();
}

function put(body, about) {
  for (const name of [...NAMES, "epsilon"]) say(name, "");
  place.value = JSON.stringify(body, null, 2);
  byId("about").textContent = about;
  say("body", "");
  byId("trouble").replaceChildren();
  reread();
}

byId("algorithm").addEventListener("change", () => {
  const one = found.algorithms.find((each) => each.name === byId("algorithm").value);
  if (!one) return;
  for (const one of document.querySelectorAll("#recipes input:checked")) one.checked = false;
  taken = null;
  const job = structuredClone({ spec: one.example });
  keepData(job);
  put(job, one.summary);
});

const take = (name) =>
  asked(async () => {
    const body = await api(`/v1/recipes/${encodeURIComponent(name)}`);
    if (document.querySelector("#recipes input:checked")?.value !== name) return;
    byId("algorithm").value = "";
    const of = found.recipes.find((one) => one.name === name);
    taken = { data: JSON.stringify(body.spec.data), declared: of?.declared, asked: butEpsilon(body), measured: of?.measured || [] };
    keepData(body);
    put(body, "This recipe is filled in below.");
  });

/** Changes the job that stands in the JSON. */
function rewrite(change) {
  const job = parsed(place.value);
  if (job === null) return;
  change(job);
  place.value = JSON.stringify(job, null, 2);
  show(job);
  cost();
}

editGuarantee(rewrite);

place.addEventListener("input", () => {
  for (const name of ["body", "data-set"]) say(name, "");
  reread();
});

for (const name of NAMES) {
  byId(name).addEventListener("change", () => {
    const job = parsed(place.value);
    if (job === null && name === "data-set") show(null);
    if (job === null || !write(name, job)) return;
    if (name === "data-set") {
      if (byId(name).value === "") restoreData(job);
      adopt(job);
    }
    if (name === "ledger") {
      showRules(job.ledger);
      write("purpose", job);
    }
    place.value = JSON.stringify(job, null, 2);
    if (name === "ledger" || name === "data-set") {
      show(job);
      cost();
    }
  });
}

offerUploads((made) => {
  found.dataSets.unshift(made);
  byId("data-set").append(dataOption(made));
  if (byId("beside-data").disabled) return false;
  byId("data-set").value = made.id;
  byId("data-set").dispatchEvent(new Event("change"));
  return true;
});

// What it costs

const now = later(async (job, ledger) => {
  asking = new AbortController();
  const { signal } = asking;
  try {
    const [held, told] = await Promise.all([api(`/v1/ledgers/${ledger.id}`, { signal }), api(`/v1/ledgers/${ledger.id}/projections`, { method: "POST", body: { spec: job.spec }, signal })]);
    if (!signal.aborted) byId("cost").replaceChildren(...costWords(held, told));
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Problem)) throw error;
    const why = error.fields.length ? error.fields.map((one) => `${one.field}: ${one.message}`).join("; ") : error.message;
    byId("cost").replaceChildren(el("p", { class: "notice" }, `Can't tell what it would cost in ${ledger.definition.name}: ${why}`));
  }
}, PAUSE);

function cost() {
  asking.abort();
  const job = parsed(place.value);
  const ledger = job && found.ledgers.find((one) => one.id === job.ledger);
  if (!ledger) {
    now.cancel();
    byId("cost").replaceChildren();
    return;
  }
  now(job, ledger);
}

function costWords(ledger, told) {
  const { name } = ledger.definition;
  if (told.separately === null) return [el("p", { class: "notice good" }, `It would cost nothing in ${name}.`)];
  if (told.after === null) return [el("p", { class: "notice bad" }, `It doesn't fit into ${name} at the moment: more noise, fewer steps or smaller samples cost less.`)];
  const after = telling({ definition: ledger.definition, balance: told.after });
  const before = ledger.balance.limits.find((use) => use.quantity === after?.quantity);
  const more = told.separately - 1;
  const fits = more === 0 ? "no more like it would fit after it" : more === 1 ? "one more like it would fit after it" : `${more.toLocaleString("en")} more like it would fit after it`;
  const left = before ? `Left in ${after.quantity}: ${bound(before.remaining, { down: true })} now, ${bound(after.remaining, { down: true })} after it. ` : "";
  return [el("p", { class: "notice good" }, `It fits into ${name}; ${fits}. ${left}Nothing is reserved until you send it.`), ...(after ? [el("div", { class: "half" }, bar(after))] : [])];
}

// Sending it

/** To the first field that something is wrong with, which may be folded. */
function goToFirst() {
  const first = byId("form").querySelector('[aria-invalid="true"]');
  first?.closest("details")?.setAttribute("open", "");
  first?.focus();
}

/** Shows each error next to its field, and errors in the spec next to the JSON. */
function lay(problem) {
  const inJson = [];
  for (const one of problem.fields) {
    const path = one.field.replace(/^body\./, "");
    const known = Object.keys(PLACES).find((name) => path === name || path.startsWith(`${name}.`));
    if (known) say(PLACES[known], one.message);
    else inJson.push(`${path}: ${one.message}, got ${one.got}`);
  }
  if (inJson.length) say("body", inJson.join("\n"));
  if (problem.type.endsWith("budget-exceeded") || problem.type.endsWith("ledger-closed") || problem.type.endsWith("ledger-not-found")) say("ledger", problem.message);
  else if (!problem.fields.length) byId("trouble").replaceChildren(refusal(problem));
  goToFirst();
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("trouble").replaceChildren();
  say("body", "");
  let body;
  try {
    body = JSON.parse(place.value);
  } catch (error) {
    say("body", place.value.trim() ? `This isn't JSON: ${error.message}` : "Choose a recipe, or write a job.");
    goToFirst();
    return;
  }
  if (byId("epsilon").getAttribute("aria-invalid") === "true") {
    goToFirst();
    return;
  }
  // A field whose words couldn't be read isn't in the JSON: it would be lost without a word.
  if (!byId("beside").disabled && ["labels", "priority", "timeout"].filter((name) => !byId(name).disabled && !write(name, structuredClone(body))).length) {
    goToFirst();
    return;
  }
  const send = byId("send");
  send.disabled = true;
  try {
    // The text as it is: numbers that a browser can't hold are the service's to judge.
    const answer = await request("/v1/jobs", { method: "POST", body: place.value, more: { "idempotency-key": byId("form").dataset.once } });
    const job = await answer.json();
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    lay(error);
    // A refused request made nothing, and a changed one needs its own name; one that wasn't answered may have made a job.
    if (error.status !== 0) byId("form").dataset.once = newName();
  } finally {
    send.disabled = false;
  }
});

/** A name of a request. `crypto.randomUUID` is only there over https and on this machine itself. */
function newName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

byId("form").dataset.once = newName();
load();
document.addEventListener("zetadp-key", load);
watchWorkers();
