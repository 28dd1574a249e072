// The first page's calculator: Gaussian noise in three numbers, both ways, and what the guarantee means for one person.

import { announce, bound, byId } from "./core.js";
import { FieldProblem, decimal, whole } from "./form.js";
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

function body() {
  if (wanted() === "guarantee") return { event: eventOf(above(noise)), deltas: [point()] };
  return { event: eventOf(1), target: { epsilon: above(epsilon), delta: point() } };
}

async function show(answer, { signal, asked }) {
  const at = delta.value.trim();
  const std = wanted() === "guarantee" ? noise.value.trim() : bound(answer.std, { digits: 6 });
  const guarantee = wanted() === "guarantee" ? answer.epsilon[0] : answer.guarantee.epsilon;
  const said = wanted() === "guarantee" ? `epsilon at most ${bound(guarantee.upper)} at delta ${at}` : `noise ${std} for epsilon ${epsilon.value.trim()} at delta ${at}`;
  byId("headline").textContent = said;
  announce(said);
  byId("continue").href = `/calculators/gaussian?${new URLSearchParams({ std, count: count.value.trim(), delta: at })}`;
  const point = asked.deltas ? asked.deltas[0] : asked.target.delta;
  await explain(byId("meaning"), { epsilon: guarantee.upper, delta: point, adjacency: "add_remove", unit: "person", signal, event: answer.event || asked.event });
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
