// A network as a list that one edits: its layers in their order, each with its numbers. What no field can hold stays in the JSON.

import { announce, byId, el } from "./core.js";

const LAYERS = JSON.parse(byId("layers").dataset.kinds);
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;

let shown = ""; // the model that stands there, as JSON

/** A name of the service, in words. */
const spelled = (name) => `${name[0].toUpperCase()}${name.slice(1)}`.replaceAll("_", " ");

/** Whether a field can hold a value of this kind. */
const isPlain = (value) => ["number", "string", "boolean"].includes(typeof value) || (Array.isArray(value) && value.every((one) => typeof one === "number"));

/** What was typed as a value of the same kind as before, or undefined where it is none. */
export function read(text, before) {
  const number = (part) => (part.length <= 40 && NUMBER.test(part) && Number.isFinite(Number(part)) ? Number(part) : undefined);
  if (typeof before === "boolean") return text === "yes" ? true : text === "no" ? false : undefined;
  if (typeof before === "number") return number(text.trim());
  if (!Array.isArray(before)) return text.trim() || undefined;
  const parts = text.trim() === "" ? [] : text.split(",").map((part) => number(part.trim()));
  return parts.includes(undefined) ? undefined : parts;
}

const write = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : Array.isArray(value) ? value.join(", ") : String(value));

/** A field for one value of `part`; `change` is called once it was changed. */
function field(part, name, id, label, change) {
  const words = write(part[name]);
  const input = typeof part[name] === "boolean" ? el("select", { id }, ...["yes", "no"].map((one) => el("option", { selected: one === words }, one))) : el("input", { id, value: words, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("change", () => {
    const value = read(input.value, part[name]);
    if (value === undefined) input.setAttribute("aria-invalid", "true");
    else {
      input.removeAttribute("aria-invalid");
      part[name] = value;
      change();
    }
  });
  return el("div", { class: "field" }, el("label", { for: id }, label), input);
}

const fieldsOf = (part, id, change) => Object.keys(part).filter((name) => !["kind", "layers"].includes(name) && isPlain(part[name])).map((name) => field(part, name, `${id}-${name}`, spelled(name), change));

/** Whether a part holds what no field does. */
const isMore = (part) => Object.entries(part).some(([name, value]) => name !== "layers" && value !== null && !isPlain(value));

function row(layers, place, change) {
  const layer = layers[place];
  const to = (target, words) => {
    layers.splice(place, 1);
    if (target !== null) layers.splice(target, 0, layer);
    change();
    announce(`${spelled(layer.kind)} ${words}`);
    const next = byId("layers").querySelectorAll("li")[Math.min(target ?? place, layers.length - 1)];
    next?.querySelector("button:not(:disabled)")?.focus();
  };
  const button = (words, said, target, disabled) => el("button", { type: "button", class: "quiet", disabled, "aria-label": `${words} layer ${place + 1}, ${layer.kind.replaceAll("_", " ")}`, on: { click: () => to(target, said) } }, words);
  return el(
    "li",
    {},
    el("div", { class: "row" }, el("strong", {}, spelled(layer.kind)), button("Up", "moved up", place - 1, place === 0), button("Down", "moved down", place + 1, place === layers.length - 1), button("Remove", "removed", null, layers.length === 1)),
    el("div", { class: "row high" }, ...fieldsOf(layer, `layer-${place}`, change)),
    isMore(layer) ? el("p", { class: "soft" }, "The rest of it stands in the JSON.") : null,
  );
}

/**
 * Shows the job's model. `changed` gets a function of the job whenever somebody changed it.
 * @param {any} job null where there is none
 * @param {(change: (job: any) => void) => void} changed
 */
export function showModel(job, changed) {
  const model = job?.spec?.model;
  const place = byId("layers");
  byId("layers-part").hidden = model === null || typeof model !== "object";
  if (byId("layers-part").hidden) return;
  const text = JSON.stringify(model);
  if (text === shown) return;
  shown = text;
  const mine = JSON.parse(text);
  const change = () => {
    changed((other) => {
      other.spec.model = mine;
    });
  };
  const more = Array.isArray(mine.layers) ? [list(mine.layers, change)] : [];
  place.replaceChildren(el("p", {}, el("strong", {}, spelled(String(mine.kind ?? "model")))), el("div", { class: "row high" }, ...fieldsOf(mine, "model", change)), ...more, ...(isMore(mine) ? [el("p", { class: "soft" }, "The rest of it stands in the JSON.")] : []));
}

function list(layers, change) {
  const kinds = el("select", { id: "layer-kind" }, ...LAYERS.map((one, place) => el("option", { value: String(place) }, `${spelled(one.kind)}${one.name ? `: ${one.name}` : ""}`)));
  const add = () => {
    layers.push(structuredClone(LAYERS[Number(kinds.value)]));
    change();
    announce("Layer added at the end");
    byId("layer-kind").focus();
  };
  return el("div", {}, el("ol", { class: "layers" }, ...layers.map((_, place) => row(layers, place, change))), el("div", { class: "row low" }, el("div", { class: "field" }, el("label", { for: "layer-kind" }, "Another layer"), kinds), el("button", { type: "button", class: "quiet", on: { click: add } }, "Add it at the end")));
}
