// One calculator: reads the form, asks the service while you type, and keeps everything in the address.

import { Problem, announce, api, bound, byId, copy, el, figure, later, number, refusal, request } from "./core.js";
import { linePlot } from "./plots.js";

const PAUSE = 120; // milliseconds without a key before the service is asked
const root = byId("calculator");
const kind = root.dataset.kind;
const training = root.dataset.training === "yes";
const form = byId("form");
const fields = [...form.querySelectorAll("[data-path]")];
const own = Object.fromEntries([...form.querySelectorAll("[data-own]")].map((input) => [input.dataset.own, input]));
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?$/i;

let running = new AbortController();
let shown = null; // the last good answer's request, for what is copied

class FieldProblem extends Error {
  constructor(input, message) {
    super(message);
    this.input = input;
  }
}

const mode = () => form.elements.mode.value;

// The form

function decimal(input, text = input.value.trim()) {
  if (text === "") throw new FieldProblem(input, "This needs a number.");
  if (text.length > 60 || !DECIMAL.test(text)) throw new FieldProblem(input, "Write a number, such as 0.5 or 1e-5.");
  const value = Number(text);
  if (!Number.isFinite(value)) throw new FieldProblem(input, "That number is too large to compute with.");
  return value;
}

function whole(input, text = input.value.trim()) {
  const value = decimal(input, text);
  if (!Number.isInteger(value)) throw new FieldProblem(input, "Write a whole number.");
  return value;
}

function valueOf(input) {
  const text = input.value.trim();
  if (text === "" && input.dataset.required === undefined && input.tagName !== "SELECT") return null;
  switch (input.dataset.kind) {
    case "number":
      return decimal(input);
    case "integer":
      return whole(input);
    case "integers":
      return text.split(",").map((part) => whole(input, part.trim()));
    default:
      if (text === "") throw new FieldProblem(input, "This needs a word.");
      return text;
  }
}

function mechanism() {
  const made = { kind };
  for (const input of fields) {
    const value = valueOf(input);
    if (value === null) continue;
    const way = input.dataset.path.split(".");
    const last = way.pop();
    let place = made;
    for (const part of way) place = place[part] ??= {};
    place[last] = value;
  }
  return made;
}

function eventOf(count) {
  let event = { kind: "release", mechanism: mechanism() };
  const probability = decimal(own.probability);
  if (!(probability > 0 && probability <= 1)) throw new FieldProblem(own.probability, "Must be more than 0 and at most 1.");
  if (probability < 1) event = { kind: "poisson_sampled", probability, event };
  return training || count > 1 ? { kind: "repeated", count, event } : event;
}

function asked() {
  const wanted = mode();
  const delta = decimal(own.delta);
  const count = wanted === "count" ? 1 : whole(own.count);
  if (count < 1) throw new FieldProblem(own.count, "Must be at least 1.");
  if (wanted === "guarantee") {
    return { path: "/v1/profiles", body: { event: eventOf(count), deltas: [delta], advantage: true, alphas: [0.01], priors: [0.5] } };
  }
  const target = { epsilon: decimal(own.epsilon), delta };
  if (wanted === "noise") return { path: "/v1/calibrations", body: { event: eventOf(count), target } };
  const event = eventOf(1);
  return {
    path: "/v1/calibrations",
    body: { event: event.kind === "repeated" ? event : { kind: "repeated", count: 1, event }, target, parameter: { kind: "steps" } },
  };
}

// Problems beside their fields

function clear() {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const place of form.querySelectorAll(".problem")) place.textContent = "";
  byId("problem").textContent = "";
}

function blame(input, message) {
  input.setAttribute("aria-invalid", "true");
  byId(`${input.id}-problem`).textContent = message;
  input.closest("details")?.setAttribute("open", "");
}

function inputOf(path) {
  const inner = /(?:^|\.)mechanism\.(.+)$/.exec(path)?.[1];
  if (inner) {
    const name = inner.replace(/\[\d+\]/g, "");
    return fields.find((input) => input.dataset.path === name) || fields.find((input) => name.endsWith(input.dataset.path));
  }
  if (/deltas|target\.delta/.test(path)) return own.delta;
  if (/target\.epsilon/.test(path)) return own.epsilon;
  if (/probability$/.test(path)) return own.probability;
  if (/count$/.test(path)) return own.count;
  return undefined;
}

function tell(problem) {
  const rest = [];
  for (const field of problem.fields) {
    const input = inputOf(field.field);
    if (input) blame(input, `${field.message[0].toUpperCase()}${field.message.slice(1)}.`);
    else rest.push(`${field.field}: ${field.message}`);
  }
  if (!problem.fields.length || rest.length) byId("problem").textContent = rest.length ? rest.join("; ") : problem.message;
}

// The answer

function sentences(profile, unit) {
  const lines = [];
  const success = profile.bayes_success[0]?.success;
  const replaced = profile.adjacency === "replace_one";
  const guess = replaced ? `which of two values is one ${unit}'s` : `whether one particular ${unit} is in the data`;
  if (success !== undefined) lines.push(`Somebody who knows all other data and guesses ${guess} is right at most ${bound(100 * success)} % of the time; chance is 50 %.`);
  const beta = profile.trade_off[0]?.beta;
  if (beta !== undefined) {
    const named = replaced ? "settle on the right one of the two" : "recognise at most";
    lines.push(`Wrong about 1 in 100 others, they ${replaced ? `${named} in at most` : named} ${bound(100 * (1 - beta))} % of ${replaced ? "cases" : "the members"}.`);
  }
  if (profile.gdp_mu !== null) lines.push(`As Gaussian differential privacy: mu at most ${bound(profile.gdp_mu)}.`);
  lines.push(`Neighbours: ${{ add_remove: "one unit more or less", replace_one: "one unit replaced by another", zero_out: "one unit blanked out" }[profile.adjacency] || "none"}. Accountant: ${profile.route}.`);
  return lines;
}

function headline(answer, delta) {
  if (mode() === "guarantee") return `epsilon at most ${bound(answer.epsilon[0].upper)} at delta ${delta}`;
  const release = inner(answer.event);
  if (mode() === "count") return `${answer.value.toLocaleString("en")} releases, and no more`;
  const names = ["std", "std_real", "std_imag", "scale", "epsilon"].filter((name) => release.mechanism[name] !== undefined && release.mechanism[name] !== null);
  const down = (name) => name === "epsilon";
  return names.map((name) => `${name} ${bound(release.mechanism[name], { digits: 6, down: down(name) })}`).join(", ");
}

function inner(event) {
  let found = event;
  while (found.event) found = found.event;
  return found;
}

function show(answer, profile, delta) {
  byId("headline").textContent = headline(answer, delta);
  const lines = sentences(profile, profile.unit || "record");
  if (mode() !== "guarantee") {
    lines.unshift(`Then epsilon is at most ${bound(profile.epsilon[0].upper)} at delta ${delta}.`);
    if (answer.noise_multiplier) lines.unshift(`Noise multiplier (deviation over sensitivity): ${bound(answer.noise_multiplier, { digits: 6 })}.`);
    if (answer.at_limit) lines.unshift("That is the largest or least value that is tried: the target is met with room to spare.");
  }
  byId("sentences").replaceChildren(...lines.map((line) => el("p", {}, line)));
  const steps = [...(answer.derivation || []), ...(mode() === "guarantee" ? [] : profile.derivation)];
  byId("steps").replaceChildren(
    ...steps.map((step) => el("tr", {}, el("th", { scope: "row" }, step.symbol), el("td", { class: "mono", "data-name": "Value" }, typeof step.value === "number" ? figure(step.value, 8) : step.value), el("td", { "data-name": "Formula" }, step.formula), el("td", { "data-name": "Source" }, step.source))),
  );
  announce(byId("headline").textContent);
}

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const box = byId("answer");
  clear();
  let wanted;
  try {
    wanted = asked();
  } catch (error) {
    if (!(error instanceof FieldProblem)) throw error;
    blame(error.input, error.message);
    box.classList.add("stale");
    box.setAttribute("aria-busy", "false");
    return;
  }
  remember();
  box.setAttribute("aria-busy", "true");
  try {
    const delta = own.delta.value.trim();
    const answer = await api(wanted.path, { method: "POST", body: wanted.body, signal });
    const event = answer.event || wanted.body.event;
    const profile = mode() === "guarantee" ? answer : await api("/v1/profiles", { method: "POST", signal, body: { event, deltas: [Number(delta)], advantage: true, alphas: [0.01], priors: [0.5] } });
    show(answer, profile, delta);
    shown = wanted;
    box.classList.remove("stale");
    await draw(event, profile, delta, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    box.classList.add("stale");
    if (!(error instanceof Problem)) throw error;
    tell(error);
  } finally {
    if (!signal.aborted) box.setAttribute("aria-busy", "false");
  }
}

// Plots

const spaced = (from, to, count) => Array.from({ length: count }, (_, place) => from + ((to - from) * place) / (count - 1));
const powers = (from, to, count) => spaced(Math.log(from), Math.log(to), count).map(Math.exp);

async function draw(event, profile, delta, signal) {
  const epsilon = number(profile.epsilon[0].upper);
  const end = Number.isFinite(epsilon) && epsilon > 0 ? 2 * epsilon : 10;
  // What isn't Gaussian has no closed form: each of its points takes a search.
  const quick = profile.gdp_mu !== null;
  const alphas = quick ? [...powers(1e-4, 0.1, 12), ...spaced(0.15, 1, 18)] : [0.001, 0.01, 0.05, 0.2, 0.4, 0.7, 1];
  const ask = (points) => api("/v1/profiles", { method: "POST", signal, body: { event, ...points } });
  const parts = [
    () => ask({ epsilons: spaced(0, end, quick ? 33 : 13), orders: powers(1.1, 200, 24) }).then((curve) => [deltas(curve, epsilon, delta), divergences(curve)]),
    () => swept(event, delta, signal),
    () => ask({ alphas }).then((curve) => [tradeOff(curve)]),
  ];
  const place = byId("plots");
  const made = [];
  for (const part of parts) {
    try {
      made.push(...(await part()));
    } catch (error) {
      // The answer stands without this picture.
      if (!(error instanceof Problem)) throw error;
      made.push(refusal(error));
    }
    if (signal.aborted) return;
  }
  place.replaceChildren(...made);
}

function deltas(curve, epsilon, delta) {
  return linePlot({
    title: "Delta against epsilon",
    about: "All of these pairs hold at once; the dot is the one asked for.",
    x: { label: "epsilon" },
    y: { label: "delta (upper bound)", log: true },
    series: [{ name: "delta", points: curve.delta.map((point) => [number(point.epsilon), point.upper]) }],
    marks: [[epsilon, Number(delta), "asked for"]],
    file: "delta-of-epsilon",
  });
}

function divergences(curve) {
  return linePlot({
    title: "Renyi divergence",
    about: "Upper bounds by order.",
    x: { label: "order", log: true },
    y: { label: "Renyi divergence (upper bound)", log: true },
    series: [{ name: "divergence", points: curve.rdp.map((point) => [point.order, number(point.value)]) }],
    file: "renyi",
  });
}

function tradeOff(curve) {
  return linePlot({
    title: "The attacker's errors",
    about: "For each rate of false accusations, the least rate of members that go unnoticed; the dashed line is blind guessing.",
    x: { label: "false positives" },
    y: { label: "false negatives (lower bound)" },
    series: [
      { name: "least possible", points: curve.trade_off.map((point) => [point.alpha, point.beta]) },
      { name: "blind guessing", points: [[0, 1], [1, 0]] },
    ],
    file: "trade-off",
  });
}

async function swept(event, delta, signal) {
  const release = inner(event);
  const name = ["std", "scale", "epsilon"].find((one) => release.mechanism[one] !== undefined && release.mechanism[one] !== null);
  const made = [];
  if (name) {
    const at = release.mechanism[name];
    const values = powers(at / 4, at * 4, 9);
    made.push(plotOf(await batch(values.map((value) => withScale(event, name, value)), delta, signal), values, { x: `${name} of the noise`, title: "Epsilon against noise", file: "epsilon-of-noise", log: true }));
  }
  if (event.kind === "repeated" && event.count >= 8) {
    const counts = [...new Set(powers(1, event.count * 2, 9).map(Math.round))];
    made.push(plotOf(await batch(counts.map((count) => ({ ...event, count })), delta, signal), counts, { x: "releases", title: "Epsilon against releases", file: "epsilon-of-releases", log: true }));
  }
  return made;
}

function withScale(event, name, value) {
  return event.event ? { ...event, event: withScale(event.event, name, value) } : { ...event, mechanism: { ...event.mechanism, [name]: value } };
}

async function batch(events, delta, signal) {
  const requests = events.map((event) => ({ event, deltas: [Number(delta)] }));
  const answer = await request("/v1/profiles/batch", { method: "POST", signal, body: JSON.stringify({ requests }) });
  return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

function plotOf(lines, values, of) {
  const points = lines.map((line, place) => [values[place], number(line.profile?.epsilon?.[0]?.upper)]);
  return linePlot({
    title: of.title,
    about: "Upper bounds at the delta asked for.",
    x: { label: of.x, log: of.log },
    y: { label: "epsilon (upper bound)", log: true },
    series: [{ name: "epsilon", points: points.filter(([, epsilon]) => Number.isFinite(epsilon)) }],
    file: of.file,
  });
}

// The address holds the whole form

function remember() {
  const query = new URLSearchParams({ mode: mode() });
  for (const [name, input] of Object.entries(own)) query.set(name, input.value.trim());
  for (const input of fields) if (input.value.trim() !== input.defaultValue) query.set(input.dataset.path, input.value.trim());
  history.replaceState(null, "", `${location.pathname}?${query}`);
}

function recall() {
  const query = new URLSearchParams(location.search);
  const wanted = query.get("mode");
  if (["guarantee", "noise", "count"].includes(wanted)) form.elements.mode.value = wanted;
  for (const [name, input] of Object.entries(own)) if (query.has(name)) input.value = query.get(name).slice(0, 60);
  for (const input of fields) {
    if (!query.has(input.dataset.path)) continue;
    const value = query.get(input.dataset.path).slice(0, 60);
    if (input.tagName !== "SELECT" || [...input.options].some((option) => option.value === value)) input.value = value;
    if (value !== "") input.closest("details")?.setAttribute("open", "");
  }
}

function arrange() {
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(mode());
}

// What can be taken along

function exported(what) {
  const { path, body } = shown;
  const json = JSON.stringify(body, null, 2);
  if (what === "link") return location.href;
  if (what === "json") return json;
  const here = location.origin;
  if (what === "curl") return `curl -sS ${here}${path} -H 'content-type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  return `import json, urllib.request\n\nbody = json.loads(r"""${json}""")\nrequest = urllib.request.Request("${here}${path}", json.dumps(body).encode(), {"content-type": "application/json"})\nprint(json.load(urllib.request.urlopen(request)))\n`;
}

byId("exports").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || !shown) return;
  const before = button.textContent;
  button.textContent = (await copy(exported(button.dataset.copy), button.dataset.copy)) ? "Copied" : "Not allowed";
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
});

const soon = later(update, PAUSE);
form.addEventListener("input", () => {
  arrange();
  soon();
});
form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("zetadp-theme", soon);
document.addEventListener("zetadp-key", soon);
recall();
arrange();
update();
