// A data set of one's own, made where it is needed: a file is uploaded, its arrays are shown, and one says which is what.

import { Problem, announce, api, byId, el, key, refusal, request } from "./core.js";
import { say } from "./submit-fields.js";

/** The format that a file's name says, by how it ends. */
const ENDINGS = { npz: "npz", npy: "npy", idx: "idx", csv: "csv", zip: "wav_zip", h5: "hdf5", hdf5: "hdf5", mat: "mat", nii: "nifti" };
const FIELDS = ["upload-file", "upload-format", "set-name", "set-unit", "set-features", "set-labels", "set-classes", "set-held-out"];
/** The element for each field of the service. */
const PLACES = { name: "set-name", description: "set-name", unit: "set-unit", features: "set-features", targets: "set-labels", classes: "set-classes", held_out: "set-held-out", format: "upload-format" };

let upload = null;
let turn = 0; // of files that were chosen: an earlier one's answer that comes later isn't shown

/** Numbers as one writes a shape. */
const shapeWords = (shape) => (shape.length ? shape.map((one) => one.toLocaleString("en")).join(" \u00d7 ") : "one number");

/** What was made, in words. */
export function factsWords({ training_records: training, test_records: test, shape, is_complex: complex, classes, unit, users, user_unit: owner }) {
  const numbers = `${shapeWords(shape)} ${complex ? "complex" : "real"} numbers`;
  const whose = users ? `, of ${users.toLocaleString("en")} ${String(owner).replaceAll("_", " ")}s` : "";
  return `${training.toLocaleString("en")} records to train on${whose} and ${test.toLocaleString("en")} held out; one ${unit.replaceAll("_", " ")} is ${numbers}${classes ? `, in one of ${classes} classes` : ""}.`;
}

function formatOf(name) {
  const parts = name.toLowerCase().replace(/\.gz$/, "").split(".");
  return ENDINGS[parts.at(-1)] || "";
}

function forget() {
  turn += 1;
  upload = null;
  for (const id of FIELDS) say(id, "");
  byId("upload-trouble").replaceChildren();
  byId("set-made").textContent = "";
  byId("upload-arrays").replaceChildren();
  byId("upload-part").hidden = true;
}

function showArrays({ arrays, left_out: left }) {
  const rows = arrays.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { "data-name": "Shape" }, shapeWords(one.shape)), el("td", { "data-name": "Type" }, one.dtype)));
  const head = el("thead", {}, el("tr", {}, ...["Array", "Shape", "Type"].map((name) => el("th", { scope: "col" }, name))));
  byId("upload-arrays").replaceChildren(
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Arrays in the file" }, el("table", { class: "stacked" }, head, el("tbody", {}, ...rows))),
    ...(left.length ? [el("p", { class: "soft" }, `Not used: ${left.join(", ")}.`)] : []),
  );
  const option = (one) => el("option", { value: one.name }, `${one.name} (${shapeWords(one.shape)}, ${one.dtype})`);
  byId("set-features").replaceChildren(...arrays.map(option));
  byId("set-labels").replaceChildren(...arrays.map(option));
  // Labels are whole numbers in one row; records are what has most axes.
  const label = arrays.find((one) => one.shape.length === 1 && /int/.test(one.dtype));
  const record = [...arrays].sort((one, other) => other.shape.length - one.shape.length)[0];
  if (record) byId("set-features").value = record.name;
  if (label) byId("set-labels").value = label.name;
  byId("upload-part").hidden = false;
  announce(`${arrays.length} arrays were found in the file`);
}

/** Shows a refusal at its fields. */
function lay(problem) {
  const rest = problem.fields.filter((one) => {
    const path = one.field.replace(/^(body|query)\./, "").split(/[.[]/)[0];
    if (PLACES[path]) say(PLACES[path], one.message);
    return !PLACES[path];
  });
  if (rest.length || !problem.fields.length) byId("upload-trouble").replaceChildren(refusal(problem));
  byId("uploading").querySelector('[aria-invalid="true"]')?.focus();
}

async function busy(button, work) {
  byId(button).disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    lay(error);
  } finally {
    byId(button).disabled = false;
  }
}

const send = () =>
  busy("upload-send", async () => {
    const file = byId("upload-file").files[0];
    forget();
    if (!file) {
      say("upload-file", "Choose a file.");
      return;
    }
    if (!key.get()) {
      byId("upload-trouble").replaceChildren(refusal(new Problem(401, { detail: "This needs a key." })));
      return;
    }
    const mine = turn;
    const query = new URLSearchParams({ format: byId("upload-format").value, name: file.name.slice(0, 200) });
    const answer = await (await request(`/v1/uploads?${query}`, { method: "POST", body: file, type: "application/octet-stream" })).json();
    if (mine !== turn) return;
    upload = answer;
    showArrays(answer);
  });

function definition() {
  const number = (id) => Number(byId(id).value.trim());
  const array = (id) => [{ upload: upload.id, array: byId(id).value }];
  const chosen = upload.arrays.find((one) => one.name === byId("set-features").value);
  const name = byId("set-name").value.trim();
  if (name === "") say("set-name", "Say what it is: certificates quote it as your words.");
  if (!/^\d{1,5}$/.test(byId("set-classes").value.trim())) say("set-classes", "Enter a whole number, at least 2.");
  if (!(number("set-held-out") > 0 && number("set-held-out") < 100)) say("set-held-out", "Enter a number between 0 and 100, such as 20.");
  if (FIELDS.some((id) => byId(id).getAttribute("aria-invalid") === "true")) return null;
  return {
    name,
    description: name,
    task: "classification",
    numbers: /complex/.test(chosen.dtype) ? "complex" : "real",
    unit: byId("set-unit").value.trim(),
    features: array("set-features"),
    targets: array("set-labels"),
    classes: number("set-classes"),
    held_out: { kind: "fraction", fraction: number("set-held-out") / 100, split_seed: 0 },
  };
}

/** The form; `made` gets each data set that comes of it, and returns whether it could be chosen. */
export function offerUploads(made) {
  // Enter would send the whole training.
  byId("uploading").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    byId(upload === null ? "upload-send" : "set-send").click();
  });
  byId("upload-file").addEventListener("change", () => {
    forget();
    const file = byId("upload-file").files[0];
    const found = file ? formatOf(file.name) : "";
    if (found) byId("upload-format").value = found;
  });
  byId("upload-send").addEventListener("click", send);
  byId("set-send").addEventListener("click", () =>
    busy("set-send", async () => {
      for (const id of FIELDS) say(id, "");
      byId("upload-trouble").replaceChildren();
      const asked = definition();
      if (asked === null) {
        byId("uploading").querySelector('[aria-invalid="true"]')?.focus();
        return;
      }
      const mine = turn;
      const one = await api("/v1/data-sets", { method: "POST", body: asked });
      const isChosen = made(one);
      if (mine === turn) byId("set-made").textContent = `${one.definition.name}: ${factsWords(one.facts)} ${isChosen ? "It is chosen above." : "Choose it above once the job's JSON can be read."}`;
    }),
  );
}
