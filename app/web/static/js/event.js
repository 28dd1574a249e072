// Any event as JSON: its guarantee while you type, with the service's own words beside it where it is refused.

import { Problem, api, byId, later } from "./core.js";
import { derive, headline, sentences, show } from "./calculator-answer.js";
import { offer } from "./exports.js";
import { FieldProblem, asTyped, blame, clear, decimal, giveUp, markPending, markStale } from "./form.js";
import { explain } from "./meaning.js";
import { unitsIn } from "./units.js";

const PAUSE = 250; // milliseconds without a key before the service is asked
const LONGEST = 6000; // characters of an event that the address holds
const [text, delta, example] = ["event", "delta", "example"].map(byId);

let running = new AbortController();
let shown = null; // the last good answer's request, for what is copied

function asked() {
  let event;
  try {
    event = JSON.parse(text.value);
  } catch (error) {
    throw new FieldProblem(text, `This isn't JSON: ${error.message}.`);
  }
  const point = decimal(delta);
  if (!(point > 0 && point < 1)) throw new FieldProblem(delta, "Must be more than 0 and less than 1.");
  return { path: "/v1/profiles", body: { event, deltas: [point], derivation: true } };
}

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  clear(byId("form"));
  try {
    const wanted = asked();
    const at = asTyped(delta);
    remember(wanted.body.event);
    const profile = await api(wanted.path, { method: "POST", body: wanted.body, signal });
    show(headline("guarantee", profile, at), sentences({ ...profile, epsilon: profile.epsilon[0].upper }));
    derive(profile.derivation, profile);
    shown = wanted;
    markStale(false);
    const { adjacency, unit } = profile;
    await explain(byId("meaning"), { epsilon: profile.epsilon[0].upper, delta: wanted.body.deltas[0], adjacency, unit, units: unitsIn(wanted.body.event), signal, event: wanted.body.event });
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = null;
    for (const name of ["steps", "route"]) byId(name).replaceChildren();
    markStale(true);
    if (error instanceof FieldProblem) blame(error.input, error.message);
    else if (error instanceof Problem) blame(text, error.fields.length ? error.fields.map((one) => `${one.field}: ${one.message}`).join("; ") : error.message);
    else giveUp(error);
  } finally {
    if (!signal.aborted) byId("answer").setAttribute("aria-busy", "false");
  }
}

/** The address holds the event, unless it is too long for one. */
function remember(event) {
  const kept = JSON.stringify(event);
  const query = new URLSearchParams({ event: kept, delta: delta.value.trim() });
  history.replaceState(null, "", kept.length <= LONGEST ? `${location.pathname}?${query}` : location.pathname);
}

function restore() {
  const query = new URLSearchParams(location.search);
  if (query.has("delta")) delta.value = query.get("delta").slice(0, 60);
  if (!query.has("event")) return;
  try {
    text.value = JSON.stringify(JSON.parse(query.get("event")), null, 2);
  } catch {
    text.value = query.get("event");
  }
}

offer(() => shown);

const soonest = later(update, PAUSE);
function soon() {
  markPending();
  soonest();
}
byId("form").addEventListener("input", (event) => {
  if (event.target === example) {
    if (!example.value) return;
    text.value = example.value;
  } else if (event.target === text) example.value = "";
  soon();
});
byId("form").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("zetadp-key", soon);
restore();
update();
