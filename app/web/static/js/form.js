// Fields of a form: typed text as values, and error messages next to their fields.

import { byId, digits } from "./core.js";

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?$/i;
const NOTHING = "…"; // shown until there is an answer
const LONG = 400; // milliseconds until a page says that it computes
const LONGEST = 60; // characters of a number, and of what an address keeps of a field

/** What is wrong with one field, in words shown next to it. */
export class FieldProblem extends Error {
  constructor(input, message) {
    super(message);
    this.input = input;
  }
}

export function decimal(input, text = input.value.trim()) {
  if (text === "") throw new FieldProblem(input, "Enter a number.");
  if (text.length > LONGEST || !DECIMAL.test(text)) throw new FieldProblem(input, "Enter a number, such as 0.5 or 1e-5.");
  const value = Number(text);
  if (!Number.isFinite(value)) throw new FieldProblem(input, "This number is too large to compute with.");
  return value;
}

const SMALLEST_EXACT = 2.3e-308; // below, floats have fewer digits

/** What was typed where it is the very number that is computed with, else that number: a float holds 15 digits of any decimal. */
export function asTyped(input) {
  const text = input.value.trim();
  const value = Number(text);
  return digits(text) <= 15 && (value === 0 || Math.abs(value) >= SMALLEST_EXACT) ? text : String(value);
}

export function whole(input, text = input.value.trim()) {
  const value = decimal(input, text);
  if (!Number.isInteger(value)) throw new FieldProblem(input, "Enter a whole number.");
  return value;
}

function word(input, text) {
  if (text === "") throw new FieldProblem(input, "Enter a value.");
  if (input.dataset.pattern && !new RegExp(input.dataset.pattern).test(text)) throw new FieldProblem(input, `Allowed: ${input.dataset.allowed}.`);
  return text;
}

function list(input, text, one) {
  return text.split(",").map((part) => one(input, part.trim()));
}

/** What one field holds; null where it may be empty and is. */
function valueOf(input) {
  const text = input.value.trim();
  const optional = input.dataset.required === undefined && input.tagName !== "SELECT";
  if (text === "" && (optional || input.tagName === "SELECT")) return null;
  switch (input.dataset.kind) {
    case "number":
      return decimal(input);
    case "integer":
      return whole(input);
    case "integers":
      return list(input, text, whole);
    case "numbers":
      return list(input, text, decimal);
    case "truth":
      return text === "true";
    default:
      return word(input, text);
  }
}

/** The values of fields as JSON, each at the path it names. */
export function gathered(fields, made = {}) {
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

/** Takes every message away. */
export function clear(form) {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const place of form.querySelectorAll(".problem")) place.textContent = "";
  byId("problem").textContent = "";
}

/** Shows a message next to its field. */
export function blame(input, message) {
  input.setAttribute("aria-invalid", "true");
  byId(`${input.id}-problem`).textContent = message;
  input.closest("details")?.setAttribute("open", "");
}

/**
 * A refusal of the service: each message next to the field that `inputOf` finds for its path, else next to the one typed in `last`
 * (all was well before); what isn't about any value is shown below the answer.
 */
export function tell(problem, inputOf, last) {
  const rest = [];
  for (const field of problem.fields) {
    const input = inputOf(field.field) || last;
    // Of several on one field the first is the cause of the others.
    if (input?.hasAttribute("aria-invalid")) continue;
    if (input) blame(input, sentence(field.message));
    else rest.push(`${field.field}: ${field.message}`);
  }
  const isOfAValue = problem.status === 422 && !problem.type.endsWith("time-limit-reached");
  if (!problem.fields.length && isOfAValue && last) blame(last, sentence(problem.message));
  else if (!problem.fields.length || rest.length) byId("problem").textContent = rest.length ? rest.join("; ") : problem.message;
}

const SIGNS = [[">=", "at least"], ["<=", "at most"], [">", "more than"], ["<", "less than"]];

/** The service's message as a sentence of a page. */
export function sentence(message) {
  const text = SIGNS.reduce((words, [sign, said]) => words.replaceAll(`be ${sign} `, `be ${said} `), message);
  return `${text[0].toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}

let waiting; // for an answer that takes long enough to say so

function isEarlier(why) {
  byId("earlier").hidden = why === "" || byId("headline").textContent === NOTHING;
  byId("earlier").textContent = why === "" ? "" : `This answer is for the earlier values. ${why}`;
}

/** The answer that is shown belongs to what was typed before, and another one is awaited: where that takes long, the page says so. */
export function markPending() {
  byId("answer").setAttribute("aria-busy", "true");
  waiting ??= setTimeout(() => isEarlier("The one for the current values is being computed."), LONG);
}

/** The answer that is shown belongs to what was typed before, with none for what is typed now, or to what is typed now. */
export function markStale(stale) {
  clearTimeout(waiting);
  waiting = undefined;
  byId("answer").classList.toggle("stale", stale);
  isEarlier(stale ? "There is no answer for the current ones." : "");
}

/** There is no answer, and nobody foresaw why: an answer that can't be read, for one. Raises the error again. */
export function giveUp(error) {
  byId("problem").textContent = "The answer couldn't be read or shown. Change a value, or reload the page, to ask again.";
  throw error;
}

// The address holds the form

/** Every [name, input] into the query, those of `fields` only where they aren't as the page came. */
export function keep(query, own, fields) {
  for (const [name, input] of Object.entries(own)) query.set(name, input.value.trim());
  for (const input of fields) if (input.value.trim() !== asItCame(input)) query.set(input.dataset.path, input.value.trim());
}

/** Whether the address can hold what was typed. */
export function fits(inputs) {
  return inputs.every((input) => input.value.trim().length <= LONGEST);
}

/** The other way round; what the query doesn't name is as the page came. */
export function recall(query, own, fields) {
  for (const [name, input] of Object.entries(own)) set(input, query.get(name));
  for (const input of fields) {
    const value = query.get(input.dataset.path);
    set(input, value);
    if (value) input.closest("details")?.setAttribute("open", "");
  }
}

function set(input, given) {
  const value = given === null ? asItCame(input) : given.slice(0, LONGEST);
  if (input.tagName !== "SELECT" || [...input.options].some((option) => option.value === value)) input.value = value;
}

function asItCame(input) {
  if (input.tagName !== "SELECT") return input.defaultValue;
  return ([...input.options].find((option) => option.defaultSelected) || input.options[0]).value;
}
