// What every page needs: elements without markup from data, requests with the key, problems in words, downloads.

const KEY = "zetadp-key";

/**
 * An element; text is always text, never markup. `attributes` may hold `class`, `on: {event: listener}` and any attribute.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {any[]} children nodes, text, lists of them; null and false are left out
 * @returns {HTMLElement}
 */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/**
 * The element of this id; an error names the id where a template lost it.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found;
}

/** What a screen reader should say now. */
export function announce(text) {
  byId("announcements").textContent = text;
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  keep: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** A refusal, in the words of the service (RFC 9457). `fields`: what is wrong with which field. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `the service answered ${status}`);
    this.status = status;
    this.title = document.title || "";
    this.type = document.type || "";
    this.fields = document.errors || [];
  }
}

function headers(more) {
  const value = key.get();
  return value ? { ...more, authorization: `Bearer ${value}` } : more;
}

/**
 * The answer of a request to this service, unread. Raises Problem for a refusal, or where nothing answered (status 0).
 * @param {string} path
 * @param {{method?: string, body?: BodyInit, type?: string, signal?: AbortSignal, more?: Record<string, string>}} [of]
 * @returns {Promise<Response>}
 */
export async function request(path, { method = "GET", body, type = "application/json", signal, more = {} } = {}) {
  /** @type {RequestInit} */
  const init = { method, signal, headers: headers(body === undefined ? more : { "content-type": type, ...more }), redirect: "error" };
  if (body !== undefined) init.body = body;
  let answer;
  try {
    answer = await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "The service doesn't answer.", detail: "The service doesn't answer; it may be restarting. What you see is from before." });
  }
  if (answer.ok) return answer;
  let document = {};
  try {
    document = await answer.json();
  } catch {
    // A proxy's page, perhaps: the status alone has to do.
  }
  if (answer.status === 401) document.detail = "This needs a valid key. Enter one with the button at the top.";
  throw new Problem(answer.status, document);
}

/**
 * JSON of this service. Numbers that JSON has no word for come as text ("Infinity").
 * @param {string} path
 * @param {{method?: string, body?: unknown, signal?: AbortSignal, more?: Record<string, string>}} [of]
 * @returns {Promise<any>}
 */
export async function api(path, { method = "GET", body, signal, more } = {}) {
  const answer = await request(path, { method, signal, more, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

/**
 * A number of the service, which writes infinity as text.
 * @param {number | string | null | undefined} value
 * @returns {number}
 */
export function number(value) {
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return value === null || value === undefined ? NaN : Number(value);
}

/** How many digits of a decimal's text matter. */
export const digits = (text) => text.toLowerCase().split("e")[0].replace(".", "").replace(/^[+-]?0*/, "").length;

/**
 * A bound rounded to so many digits upwards, or downwards with `down`: rounding must never make a claim stronger.
 * @param {number | string | null | undefined} value
 * @param {{digits?: number, down?: boolean}} [how]
 * @returns {string}
 */
export function bound(value, { digits = 4, down = false } = {}) {
  const exact = number(value);
  if (!Number.isFinite(exact)) return Number.isNaN(exact) ? "none" : exact > 0 ? "infinite" : "minus infinite";
  if (exact === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(exact))) - digits + 1;
  const near = Number(exact.toPrecision(digits));
  const kept = down ? near <= exact : near >= exact;
  const moved = kept ? near : near + (down ? -1 : 1) * 10 ** power;
  return String(Number(moved.toPrecision(digits)));
}

/** A figure that is no bound, to the nearest. */
export function figure(value, digits = 4) {
  const exact = number(value);
  return Number.isFinite(exact) ? String(Number(exact.toPrecision(digits))) : bound(exact);
}

export function percent(value) {
  return `${figure(100 * number(value), 4)} %`;
}

export function moment(text) {
  return text ? new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : "";
}

/** Offers bytes as a file. */
export function download(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: address, download: name, class: "sr" }, name);
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Text as one cell of a CSV file; what a spreadsheet would run as a formula is quoted from it. */
export function cell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (/^[=+@\t\r]/.test(text) || (text.startsWith("-") && Number.isNaN(Number(text)))) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(rows) {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Puts text on the clipboard and says so. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied`);
    return true;
  } catch {
    announce(`${what} couldn't be copied: the browser doesn't allow it`);
    return false;
  }
}

/** `work` once nothing has called for `milliseconds`; `cancel` forgets a call that waits. */
export function later(work, milliseconds) {
  let timer;
  const call = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}

/** `work` at most once in so many milliseconds, and once after the last call: however often it is called, it is done. */
export function paced(work, milliseconds) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      work();
    }, milliseconds);
  };
}

/** A refusal as a notice; where only a key is missing, an invitation to enter one. */
export function refusal(problem) {
  if (problem.status === 401 && !key.get()) {
    const enter = el("button", { type: "button", on: { click: () => byId("key").click() } }, "Enter your key");
    return el("div", { class: "notice" }, el("p", {}, "What is shown here is private. Enter your key to see it."), el("p", { class: "row" }, enter, el("a", { href: "/start" }, "I don't have a key")));
  }
  const lines = (problem.fields || []).map((field) => el("li", {}, `${field.field}: ${field.message}, got ${field.got}`));
  return el("div", { class: "notice bad", role: "alert" }, el("p", {}, problem.message), lines.length ? el("ul", {}, ...lines) : null);
}

function keyButton() {
  byId("key").textContent = key.get() ? "Key set" : "No key";
}

function startKeys() {
  const dialog = byId("key-dialog");
  byId("key").addEventListener("click", () => {
    byId("key-input").value = "";
    byId("key-problem").textContent = "";
    dialog.showModal();
  });
  byId("key-form").addEventListener("submit", (event) => {
    const wanted = event.submitter?.value || "keep";
    const value = byId("key-input").value.trim();
    if (wanted === "keep" && !/^zdp_[\x21-\x7e]{8,200}$/.test(value)) {
      event.preventDefault();
      byId("key-problem").textContent = "A key starts with zdp_ and has no spaces.";
      return;
    }
    if (wanted === "keep") key.keep(value);
    if (wanted === "forget") key.forget();
    byId("key-input").value = "";
    keyButton();
    if (wanted !== "cancel") document.dispatchEvent(new CustomEvent("zetadp-key"));
  });
  keyButton();
}

function startTheme() {
  const button = byId("theme");
  const name = () => {
    button.textContent = document.documentElement.dataset.theme === "dark" ? "Light colours" : "Dark colours";
  };
  button.addEventListener("click", () => {
    const wanted = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = wanted;
    localStorage.setItem("zetadp-theme", wanted);
    name();
    document.dispatchEvent(new CustomEvent("zetadp-theme"));
  });
  name();
}

startKeys();
startTheme();
