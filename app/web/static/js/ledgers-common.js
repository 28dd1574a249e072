// What the list of budgets and one budget's page have in common.

import { bound, el, figure, number } from "./core.js";

const SYMBOLS = { gdp: ["mu", "mu"], zcdp: ["rho", "rho"], pure: ["epsilon", "epsilon"] };

/** What others ran and declared, in words. */
const DECLARED = {
  pure_dp: (one) => `something declared ${figure(one.epsilon)}-DP`,
  approximate_dp: (one) => `something declared (${figure(one.epsilon)}, ${figure(one.delta)})-DP`,
  zcdp: (one) => `something declared ${figure(one.rho)}-zCDP`,
  gdp: (one) => `something declared ${figure(one.mu)}-GDP`,
  bounded_range: (one) => `something declared to have a range of ${figure(one.eta)}`,
  noisy_max: (one) => `the best of many scores with ${WORDS[one.noise] || one.noise} noise, as declared`,
  sparse_vector: (one) => `queries above a threshold, at most ${one.most_above} of them, as declared`,
  correlated_noise: (one) => `${one.steps} steps with correlated noise, as declared`,
};
const WORDS = {
  gaussian: "Gaussian",
  complex_gaussian: "complex Gaussian",
  complex_laplace: "complex Laplace",
  laplace: "Laplace",
  gumbel: "Gumbel",
  discrete_gaussian: "discrete Gaussian",
  discrete_laplace: "discrete Laplace",
};

/** Symbol and field of the amount that a budget of this kind counts in; null where it counts in several. */
export function currency(kind) {
  return SYMBOLS[kind] || null;
}

function limitWords(budget) {
  if (budget.kind === "rdp_target") return `epsilon ${figure(budget.epsilon)} at delta ${figure(budget.delta)}`;
  if (currency(budget.kind)) return `${budget.kind === "gdp" ? "mu" : currency(budget.kind)[0]} ${figure(budget[currency(budget.kind)[1]])}`;
  return "Rényi divergences at several orders";
}

/** A budget's limit, and that it is of one period where there are several. */
export function definedLimit({ budget, renews_after_days: days }) {
  return days ? `${limitWords(budget)} in each period of ${days} ${days === 1 ? "day" : "days"}` : limitWords(budget);
}

/** What a spend is, in words. */
export function spendWords(spend) {
  if (currency(spend.kind)) return `${currency(spend.kind)[0]} ${bound(spend[currency(spend.kind)[1]])}`;
  if (spend.kind === "rdp") return `Rényi divergences at ${spend.orders.length} orders`;
  return eventWords(spend);
}

const MOST_PARTS = 3; // of a composition that are named one by one

function releaseWords(mechanism) {
  const { kind } = mechanism;
  if (DECLARED[kind]) return DECLARED[kind](mechanism);
  const what = WORDS[kind] ? `a release with ${WORDS[kind]} noise` : `a release of ${kind.replaceAll("_", " ")}`;
  return mechanism.sensitivity ? what : `${what}, as declared`;
}

/** What ran on a sample; several releases share it. */
function sampleWords(event, sample) {
  return `${eventWords(event.event)}, ${["composed", "repeated"].includes(event.event?.kind) ? "all on the same" : "on a"} random sample${sample}`;
}

function eventWords(event) {
  switch (event.kind) {
    case "release":
      return releaseWords(event.mechanism);
    case "repeated":
      return `${event.count} times: ${eventWords(event.event)}`;
    case "poisson_sampled":
      if (event.event?.mechanism?.kind === "correlated_noise") {
        return `${eventWords(event.event)}, each unit in each of its turns with probability ${figure(event.probability)}`;
      }
      return sampleWords(event, ` (each unit with probability ${figure(event.probability)})`);
    case "truncated_poisson_sampled":
      return sampleWords(event, ` (each unit with probability ${figure(event.probability)}, cut to at most ${event.largest_batch})`);
    case "shuffled":
      return `${event.steps} steps, one for each batch of a shuffled epoch: ${eventWords(event.event)}`;
    case "fixed_size_sampled":
      return sampleWords(event, ` of ${event.sample_size} units`);
    case "randomly_weighted":
      return `${eventWords(event.event)}, to which each unit adds a random share of its contribution`;
    case "randomly_allocated":
      if (event.event?.mechanism?.kind === "correlated_noise") {
        return event.drawn === "once"
          ? `${eventWords(event.event)}, each unit in a random one of ${event.steps} bins`
          : `${eventWords(event.event)}, each unit in a random one of every ${event.steps} turns`;
      }
      return `${event.steps} steps, each unit in a random one of them: ${eventWords(event.event)}`;
    case "repeated_and_selected":
      return `the best of ${figure(event.runs.mean)} runs on average: ${eventWords(event.event)}`;
    case "grouped":
      return `for groups of at most ${event.size}: ${eventWords(event.event)}`;
    case "composed":
      if (!event.events || event.events.length > MOST_PARTS) return `${event.events?.length ?? "several"} events together`;
      return event.events.map(eventWords).join("; and ");
    default:
      return event.kind.replaceAll("_", " ");
  }
}

/** The share of a limit that is taken, of 1. What adds up to a limit on mu are the squares of mu. */
function share(quantity, limit, part) {
  const whole = number(limit);
  if (!(whole > 0)) return 1;
  const of = number(part) / whole;
  return Math.min(1, Math.max(0, quantity === "mu" ? of * of : of));
}

/** A bar of what is committed and what is reserved; its figures are also given in words, so that the bar isn't the only source. */
export function bar(use) {
  const committed = share(use.quantity, use.limit, use.committed);
  const reserved = Math.min(1 - committed, share(use.quantity, use.limit, use.reserved));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 1000 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "budget");
  svg.setAttribute("aria-hidden", "true");
  /** @type {[string, number, number][]} */
  const parts = [["committed", 0, committed], ["reserved", committed, reserved]];
  for (const [name, from, width] of parts) {
    const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    part.setAttribute("class", name);
    part.setAttribute("x", String(1000 * from));
    part.setAttribute("width", String(1000 * width));
    part.setAttribute("height", "10");
    svg.append(part);
  }
  return svg;
}

export function state(ledger) {
  return el("span", { class: `tag ${ledger.state === "open" ? "good" : "warn"}` }, ledger.state);
}

/** The limit that most is taken of, or null. One of several limits has to hold for a target: the least taken counts there. */
export function telling(ledger) {
  const uses = ledger.balance?.limits || [];
  const taken = (use) => share(use.quantity, use.limit, use.committed) + share(use.quantity, use.limit, use.reserved);
  const best = ledger.definition.budget.kind === "rdp_target";
  const real = uses.filter((use) => number(use.limit) > 0);
  return real.reduce((found, use) => (found === null || (best ? taken(use) < taken(found) : taken(use) > taken(found)) ? use : found), null);
}

export function taken(use) {
  return Math.min(1, share(use.quantity, use.limit, use.committed) + share(use.quantity, use.limit, use.reserved));
}
