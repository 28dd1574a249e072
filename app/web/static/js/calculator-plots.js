// A calculator's plots: each is requested separately and after the answer, which never waits for them.

import { Problem, api, number, refusal, request } from "./core.js";
import { attackerWords, linePlot } from "./plots.js";
import { neighbourWords } from "./terms.js";

const spaced = (from, to, count) => Array.from({ length: count }, (_, place) => from + ((to - from) * place) / (count - 1));
const powers = (from, to, count) => spaced(Math.log(from), Math.log(to), count).map(Math.exp);
const SCALES = ["std", "scale", "epsilon"]; // the fields that give a mechanism's noise

/** The release that an event is made of. */
export function inner(event) {
  let found = event;
  while (found.event) found = found.event;
  return found;
}

/** What of a mechanism says how much noise it has. */
function scaleOf(mechanism) {
  if (mechanism.kind.endsWith("_dp")) return undefined; // declared: its epsilon is no noise's
  return SCALES.find((one) => mechanism[one] !== undefined && mechanism[one] !== null);
}

/** Draws those that are wanted ("all" or one's name) into `place`, each as soon as it is there. */
export async function draw(place, wanted, { event, profile, delta, signal }) {
  const epsilon = number(profile.epsilon[0].upper);
  const words = neighbourWords(profile.adjacency, profile.unit);
  const of = { event, delta, signal, epsilon, words, end: Number.isFinite(epsilon) && epsilon > 0 ? 2 * epsilon : 10, quick: profile.gdp_mu !== null };
  place.setAttribute("aria-busy", "true");
  let drawn = 0;
  for (const [name, plot] of Object.entries(PLOTS)) {
    if (wanted !== "all" && wanted !== name) continue;
    let made;
    try {
      made = await plot(of);
    } catch (error) {
      // The answer is shown without this picture.
      if (!(error instanceof Problem)) throw error;
      made = refusal(error);
    }
    if (signal.aborted) return;
    if (made === null) continue;
    // The earlier picture stays until its successor is there.
    if (drawn < place.children.length) place.children[drawn].replaceWith(made);
    else place.append(made);
    drawn += 1;
  }
  while (place.children.length > drawn) place.lastElementChild.remove();
  place.setAttribute("aria-busy", "false");
}

const ask = ({ event, signal }, points) => api("/v1/profiles", { method: "POST", signal, body: { event, ...points } });

const PLOTS = {
  async delta(of) {
    // What isn't Gaussian has no closed form: each of its points takes a search.
    const curve = await ask(of, { epsilons: spaced(0, of.end, of.quick ? 33 : 13) });
    return linePlot({
      title: "Delta against epsilon",
      about: "All of these pairs hold at once; the dot marks the requested pair. Between computed points, the line stays on the safe side.",
      x: { label: "epsilon" },
      y: { label: "delta (upper bound)", log: true },
      series: [{ name: "delta", curve: "step-after", points: curve.delta.map((point) => [number(point.epsilon), point.upper]) }],
      marks: [[of.epsilon, Number(of.delta), "requested"]],
      file: "delta-of-epsilon",
    });
  },
  async renyi(of) {
    const curve = await ask(of, { orders: powers(1.1, 200, 24) });
    return linePlot({
      title: "Renyi divergence",
      about: "Upper bounds by order. Between computed points, the line stays on the safe side.",
      x: { label: "order", log: true },
      y: { label: "Renyi divergence (upper bound)", log: true },
      series: [{ name: "divergence", curve: "step-before", points: curve.rdp.map((point) => [point.order, number(point.value)]) }],
      file: "renyi",
    });
  },
  async attacker(of) {
    if (!of.words) return null; // no part is private, so there are no neighbours
    const alphas = of.quick ? [...powers(1e-4, 0.1, 12), ...spaced(0.15, 1, 18)] : [0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1];
    const curve = await ask(of, { alphas });
    return linePlot({
      title: "The attacker's errors",
      about: `${attackerWords(of.words)} The dashed line is blind guessing. Between computed points, the line stays on the safe side.`,
      x: { label: "false positives" },
      y: { label: "false negatives (lower bound)" },
      series: [
        // Errors fall along a convex curve, and a chord would lie above it: less could be possible than was drawn.
        { name: "least possible", curve: "step-before", points: curve.trade_off.map((point) => [point.alpha, point.beta]) },
        { name: "blind guessing", points: [[0, 1], [1, 0]] },
      ],
      file: "trade-off",
    });
  },
  async noise({ event, delta, signal }) {
    const { mechanism } = inner(event);
    const name = scaleOf(mechanism);
    if (!name) return null;
    const values = powers(mechanism[name] / 4, mechanism[name] * 4, 9);
    const lines = await batch(values.map((value) => withScale(event, name, value)), delta, signal);
    return swept(lines, values, { x: name === "epsilon" ? "epsilon of one record's release" : `${name} of the noise`, title: "Epsilon against noise", file: "epsilon-of-noise" });
  },
  async steps({ event, delta, signal }) {
    const now = countOf(event);
    const counts = [...new Set(powers(1, Math.max(16, now * 2), 9).map(Math.round))];
    const lines = await batch(counts.map((count) => withCount(event, count)), delta, signal);
    return swept(lines, counts, { x: "steps", title: "Epsilon against steps", file: "epsilon-of-steps" });
  },
};

function withScale(event, name, value) {
  return event.event ? { ...event, event: withScale(event.event, name, value) } : { ...event, mechanism: { ...event.mechanism, [name]: value } };
}

function countOf(event) {
  if (event.kind === "repeated") return event.count;
  return event.event ? countOf(event.event) : 1;
}

/** The event so often: a group's members stay one group, and all of it is in each run. */
function withCount(event, count) {
  if (event.kind === "grouped" || event.kind === "repeated_and_selected") return { ...event, event: withCount(event.event, count) };
  return { kind: "repeated", count, event: event.kind === "repeated" ? event.event : event };
}

async function batch(events, delta, signal) {
  const requests = events.map((event) => ({ event, deltas: [Number(delta)] }));
  const answer = await request("/v1/profiles/batch", { method: "POST", signal, body: JSON.stringify({ requests }) });
  return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

function swept(lines, values, of) {
  const points = lines.map((line, place) => [values[place], number(line.profile?.epsilon?.[0]?.upper)]);
  return linePlot({
    title: of.title,
    about: "Upper bounds at the requested delta, computed at the dots; the line between them only guides the eye.",
    dots: true,
    x: { label: of.x, log: true },
    y: { label: "epsilon (upper bound)", log: true },
    series: [{ name: "epsilon", points: points.filter(([, epsilon]) => Number.isFinite(epsilon)) }],
    file: of.file,
  });
}
