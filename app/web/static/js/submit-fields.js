// Between the job's JSON and the form's fields. The JSON is what is sent: a field writes into it and shows its value.

import { byId, figure } from "./core.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const SECONDS = 3600;
const MOST_LABELS = 32;

/** Shows words next to a field, or removes them. */
export function say(id, text) {
  byId(`${id}-problem`).textContent = text;
  if (text) byId(id).setAttribute("aria-invalid", "true");
  else byId(id).removeAttribute("aria-invalid");
}

function refused(words) {
  return { words };
}

/** Name=value pairs as an object. */
export function readLabels(text) {
  const labels = {};
  for (const part of text.split(",")) {
    if (!part.trim()) continue;
    const place = part.indexOf("=");
    const name = part.slice(0, place).trim();
    const value = part.slice(place + 1).trim();
    if (place < 0) return refused("Enter name=value pairs separated by commas, such as ward=7, study=a.");
    if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(name)) return refused("A name starts with a letter or digit and has only letters, digits and _ . -, at most 63 characters.");
    if (value.length > 255) return refused("A value has at most 255 characters.");
    if (Object.hasOwn(labels, name)) return refused(`${name} appears twice.`);
    labels[name] = value;
  }
  return Object.keys(labels).length > MOST_LABELS ? refused(`At most ${MOST_LABELS} labels.`) : { value: labels };
}

export function labelText(labels) {
  return Object.entries(labels || {})
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");
}

/** Labels whose values this way of writing them can't hold: commas would be read as the end of one. */
export function canShow(labels) {
  return !Object.values(labels || {}).some((value) => String(value).includes(",") || String(value).trim() !== value);
}

function readPriority(text) {
  if (text === "") return { value: 0 };
  if (!/^[+-]?\d{1,9}$/.test(text)) return refused("Enter a whole number, such as 10.");
  const most = Number(byId("form").dataset.priority);
  return Number(text) < 0 || Number(text) > most ? refused(`Between 0 and ${most}.`) : { value: Number(text) };
}

function readTimeout(text) {
  if (text === "") return { value: null };
  if (text.length > 40 || !NUMBER.test(text)) return refused("Enter a number, such as 12 or 0.5.");
  const hours = Number(text);
  const most = Number(byId("form").dataset.hours);
  return hours > 0 && hours <= most ? { value: hours * SECONDS } : refused(`More than 0, and at most ${most} hours.`);
}

/** Each field: its value from text, and text from the job. */
const FIELDS = {
  labels: { read: readLabels, put: (job, value) => (job.labels = value), show: (job) => labelText(job.labels) },
  priority: { read: readPriority, put: (job, value) => (job.priority = value), show: (job) => String(job.priority ?? 0) },
  timeout: {
    read: readTimeout,
    put: (job, value) => (job.timeout_seconds = value),
    show: (job) => (typeof job.timeout_seconds === "number" ? figure(job.timeout_seconds / SECONDS, 12) : ""),
  },
  ledger: { read: (text) => ({ value: text || null }), put: (job, value) => (job.ledger = value), show: (job) => job.ledger ?? "" },
  purpose: {
    read: (text) => ({ value: text || null }),
    put: (job, value) => {
      if (value) job.purpose = value;
      else delete job.purpose;
    },
    show: (job) => job.purpose ?? "",
  },
  "data-set": {
    read: (text) => ({ value: text }),
    put: (job, value) => {
      if (value) job.spec.data = { kind: "uploaded", data_set: value };
    },
    show: (job) => (job.spec?.data?.kind === "uploaded" ? job.spec.data.data_set : ""),
  },
};

export const NAMES = Object.keys(FIELDS);

/** A number that would change if it were written again: too large for a browser. */
function lossy(value) {
  return typeof value === "number" && (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value)));
}

/** The job that the text is, or null where it is none, or couldn't be written again as it is. */
export function parsed(text) {
  let whole = true;
  try {
    const job = JSON.parse(text, (_, value) => {
      if (lossy(value)) whole = false;
      return value;
    });
    if (!whole) return null;
    return job !== null && typeof job === "object" && !Array.isArray(job) && job.spec !== null && typeof job.spec === "object" ? job : null;
  } catch {
    return null;
  }
}

/** Writes a field's value into the job; returns whether it could be read. */
export function write(name, job) {
  const found = FIELDS[name].read(byId(name).value.trim());
  say(name, found.words || "");
  if (found.words) return false;
  FIELDS[name].put(job, found.value);
  return true;
}

/** The job's values into the fields, but never over something that couldn't be read. */
export function fill(job) {
  for (const name of NAMES) {
    const field = byId(name);
    if (field === document.activeElement || field.getAttribute("aria-invalid") === "true") continue;
    const text = FIELDS[name].show(job);
    if (field.tagName === "SELECT" && ![...field.options].some((one) => one.value === text)) field.append(new Option(`${text.slice(0, 40)} (not yours)`, text.slice(0, 200)));
    field.value = text.slice(0, 20_000);
  }
  byId("labels").disabled = !canShow(job.labels);
}
