// The first page's calculator: Gaussian noise in three numbers, both ways, and what the guarantee means for one person.

import { guaranteed, sentences, show as put } from "./calculator-answer.js";
import { inner } from "./calculator-plots.js";
import { bound, byId } from "./core.js";
import { FieldProblem, asTyped, decimal, whole } from "./form.js";
import { keepAsking } from "./keep-asking.js";
import { explain } from "./meaning.js";

const form = byId("form");
const [noise, epsilon, count, delta] = ["noise", "epsilon", "count", "delta"].map(byId);
const wanted = () => form.elements.mode.value;
const SENSITIVITY = { l2: 1, adjacency: "add_remove", unit: "person" };

function eventOf(std) {
  const release = { kind: "release", mechanism: { kind: "gaussian", std, sensitivity: SENSITIVITY } };
  const times = whole(count);
  if (times < 1) throw new FieldProblem(count, "Must be at least 1.");
  return times > 1 ? { kind: "repeated", count: times, event: release } : release;
}

function point() {
  const value = decimal(delta);
  if (!(value > 0 && value < 1)) throw new FieldProblem(delta, "Must be more than 0 and less than 1.");
  return value;
}

function above(input) {
  const value = decimal(input);
  if (!(value > 0)) throw new FieldProblem(input, "Must be more than 0.");
  return value;
}

let typed = { epsilon: "", delta: "" }; // as they stood when it was asked

function body() {
  const at = point();
  typed = { epsilon: asTyped(epsilon), delta: asTyped(delta) };
  if (wanted() === "guarantee") return { event: eventOf(above(noise)), deltas: [at] };
  return { event: eventOf(1), target: { epsilon: above(epsilon), delta: at } };
}

/** What was asked decides how it is shown: what is typed may have changed since. */
async function show(answer, { signal, asked }) {
  const { target } = asked;
  const at = target ? target.delta : asked.deltas[0];
  const event = answer.event || asked.event;
  const { std } = inner(event).mechanism;
  const guarantee = target ? answer.guarantee.epsilon : answer.epsilon[0];
  const { adjacency, unit } = target ? answer.guarantee : answer;
  const said = target
    ? `noise ${bound(std, { digits: 6 })} times the sensitivity, for epsilon ${typed.epsilon} at delta ${typed.delta}`
    : guaranteed(guarantee.upper, typed.delta);
  put(said, sentences({ caveats: answer.caveats, adjacency, unit, epsilon: guarantee.upper }));
  const count = event.kind === "repeated" ? event.count : 1;
  const values = { std, count, delta: typed.delta, ...Object.fromEntries(Object.entries(SENSITIVITY).map(([name, value]) => [`sensitivity.${name}`, value])) };
  byId("continue").href = `/calculators/gaussian?${new URLSearchParams(Object.entries(values).map(([name, value]) => [name, String(value)]))}`;
  await explain(byId("meaning"), { epsilon: guarantee.upper, delta: at, adjacency, unit, units: null, signal, event });
}

function inputOf(path) {
  if (/delta/.test(path)) return delta;
  if (/epsilon/.test(path)) return epsilon;
  return /count$/.test(path) ? count : noise;
}

function arrange() {
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== wanted();
}

const path = () => (wanted() === "guarantee" ? "/v1/profiles" : "/v1/calibrations");
keepAsking({ form, path, fields: [noise, epsilon, count, delta], body, show, inputOf, arrange });
