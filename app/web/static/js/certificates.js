// Certificates: one from a file or by its id is checked, the verdict first; read as a document; and proved to be in the log.

import { Problem, announce, api, byId, download, el, key, refusal, request } from "./core.js";
import { explain } from "./meaning.js";
import { say } from "./submit-fields.js";

const VERDICTS = {
  valid: ["good", "Valid."],
  revoked: ["bad", "Don't rely on it: its key was revoked."],
  invalid: ["bad", "Don't rely on it: it isn't valid."],
};
const STATUSES = { passed: ["good", "passed"], failed: ["bad", "failed"], not_checked: ["warn", "not checked"] };
/** What each check looks at. */
const WORDS = {
  envelope: "Is it a certificate?",
  signature: "Is it signed by a key of this service?",
  statement: "Is its statement readable?",
  sites: "Did its sites sign what it says of them?",
  recomputation: "Do its figures follow from what it says was done?",
  curve: "Does its delta curve follow too?",
  other_figures: "Do its other figures follow too?",
  subjects: "Does it name every file of such a run?",
  plan: "Is the accounting about what the plan released?",
  accountants: "Do two independent methods agree?",
  parts: "Do its parts fit together?",
  parts_alone: "Do its statements about each single part follow?",
  log: "Is it in the log?",
  plan_logged: "Was its plan in the log before the certificate?",
  witnesses: "Did witnesses sign the log's head?",
  time_stamps: "Did somebody else stamp the time on that?",
  tpm_quote: "Did a TPM's key sign the code's digest and the log's head?",
  machine_report: "Did a confidential machine's chip sign them?",
  revocations: "Is the list of revoked keys valid?",
  revocation: "Does its key still count?",
};
const ENDINGS = { pdf: "pdf", dsse: "json", jws: "jws" };

let shown = null;
let turn = 0; // of what is asked for: an earlier answer that comes later is of another certificate

function wordsOf(name) {
  return WORDS[name] || (name.startsWith("file ") ? `Is ${name.slice(5)} the file that it names?` : name.replaceAll("_", " "));
}

/** What the operator's policy says of a certificate. */
function judgement(policy) {
  const missed = policy.rules.filter((rule) => !rule.is_met).map((rule) => `${rule.name}: ${rule.required}, got ${rule.found}`);
  return `This service's policy, ${policy.policy}: ${policy.accepted ? "accepted" : `not accepted. ${missed.join("; ")}`}.`;
}

function show(report, name) {
  let [colour, headline] = VERDICTS[report.verdict];
  if (report.checks[0]?.name === "envelope" && report.checks[0].status === "failed") headline = "This isn't a certificate.";
  else if (report.guarantee === "none") [colour, headline] = ["warn", "Genuine, but it states that there is no privacy guarantee."];
  byId("report").replaceChildren(
    el(
      "div",
      { class: `notice ${colour}`, "data-verdict": report.verdict },
      el("p", {}, el("strong", { class: "verdict-line" }, headline)),
      el("p", {}, report.meaning),
      ...(report.policy ? [el("p", { "data-accepted": String(report.policy.accepted) }, judgement(report.policy))] : []),
      el("p", { class: "soft" }, `Checked: ${name}, with this service's keys. To check it without this service, use the command line.`),
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Checks" },
      el(
        "table",
        { class: "stacked" },
        el("thead", {}, el("tr", {}, ...["Check", "Outcome", "Why"].map((text) => el("th", { scope: "col" }, text)))),
        el(
          "tbody",
          {},
          ...report.checks.map((check) =>
            el(
              "tr",
              { "data-check": check.name },
              el("th", { scope: "row" }, wordsOf(check.name)),
              el("td", { "data-name": "Outcome" }, el("span", { class: `tag ${STATUSES[check.status][0]}` }, STATUSES[check.status][1])),
              el("td", { "data-name": "Why" }, check.detail),
            ),
          ),
        ),
      ),
    ),
  );
  announce(headline);
}

/** Bytes to the service as they are: their layout is part of what is signed. */
async function verify(bytes, name, mine = turn) {
  const begins = new TextDecoder().decode(bytes.slice(0, 64)).trimStart();
  const type = begins.startsWith("{") ? "application/json" : "application/jose";
  const report = await (await request("/v1/certificates/verify", { method: "POST", body: bytes, type })).json();
  if (mine !== turn) return;
  show(report, name);
  if (report.verdict === "valid" && report.guarantee !== "none") await means(statementOf(bytes).predicate);
}

/** The signed statement of a file that was found to be a valid certificate. */
function statementOf(bytes) {
  const text = new TextDecoder().decode(bytes).trim();
  const payload = text.startsWith("{") ? JSON.parse(text).payload : text.split(".")[1];
  const content = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(content));
}

/** Adjacency and unit of a plan: all its releases have the same, but a plan for units of several records names its own. */
function neighboursOf(part) {
  if (part === null || typeof part !== "object") return null;
  if (typeof part.adjacency === "string" && typeof part.unit === "string") return { adjacency: part.adjacency, unit: part.unit };
  const found = Object.values(part).map(neighboursOf).find(Boolean) || null;
  return found && typeof part.unit === "string" ? { ...found, unit: part.unit } : found;
}

/** The number of units that a plan states, itself or in its parts or candidates, which are all of the same; null where none does. */
const unitsOf = (plan) => {
  const part = (plan?.parts ?? plan?.candidates)?.[0];
  return plan?.units ?? plan?.sampling?.records ?? plan?.records ?? (part ? unitsOf(part.plan ?? part) : null);
};

async function means({ guarantee, plan }) {
  const neighbours = neighboursOf(plan);
  if (!neighbours || guarantee.kind !== "approximate_dp") return;
  const place = el("section", { class: "meaning", "aria-label": "What it means" });
  byId("report").firstElementChild.after(el("div", { class: "answer" }, el("p", { class: "figure" }, `epsilon ${guarantee.epsilon} at delta ${guarantee.delta}`), place));
  // Of a pure guarantee no delta allows anything.
  const units = guarantee.pure_epsilon ? null : unitsOf(plan);
  await explain(place, { epsilon: guarantee.epsilon, delta: guarantee.delta, ...neighbours, units });
}

/** Shows no certificate: another one is asked for. */
function forget() {
  turn += 1;
  shown = null;
  say("id", "");
  for (const name of ["proved", "file-problem"]) byId(name).textContent = "";
  for (const name of ["forms", "document"]) byId(name).hidden = true;
  byId("report").replaceChildren();
}

async function take(file) {
  forget();
  byId("id").value = "";
  if (file.size === 0) byId("file-problem").textContent = `${file.name} is empty.`;
  else if (file.size > Number(byId("drop").dataset.most)) byId("file-problem").textContent = `${file.name} is too large for a certificate.`;
  else {
    const mine = turn;
    try {
      await verify(await file.arrayBuffer(), file.name, mine);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (mine === turn) byId("report").replaceChildren(refusal(error));
    }
  }
}

/** The service's page of a certificate, in its own tree with its own styles. No script in it would run: the policy allows none. */
async function read(id, mine) {
  const answer = await request(`/v1/certificates/${encodeURIComponent(id)}?form=html`);
  const text = await answer.text();
  if (mine !== turn) return;
  const [, style] = /<style>([\s\S]*?)<\/style>/.exec(text) || ["", ""];
  const made = new DOMParser().parseFromString(text.replace(/<style>[\s\S]*?<\/style>/, ""), "text/html");
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(styled(style.replaceAll(/(^|[\s,{}])main\b/g, "$1.main")));
  const place = byId("document");
  const root = place.shadowRoot || place.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet];
  // The page has a main part of its own.
  const content = el("div", { class: "main" });
  content.append(...document.importNode(made.querySelector("main"), true).childNodes);
  root.replaceChildren(content);
  for (const heading of root.querySelectorAll("h1")) {
    // The page has its own heading.
    const lower = document.createElement("h2");
    lower.className = "title";
    lower.append(...heading.childNodes);
    heading.replaceWith(lower);
  }
  place.hidden = false;
}

function styled(text) {
  // The colours are this page's, which follow its own switch; the certificate's names for them stay.
  const ours = ":host { --paper: var(--ground); --rule: var(--line); --fill: var(--raised); --mark: var(--accent); --loud: var(--bad); }";
  return `${text}\n${ours}\nh2.title { font-size: 1.5rem; border: 0; margin-top: 0; }\n.main { padding: 1rem 0; }`;
}

async function lookup(id) {
  forget();
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(id)) {
    say("id", id === "" ? "Enter the id; the job's page shows it." : "An id has only letters, digits, _ and -, at most 64 characters; the job's page shows it.");
    byId("id").focus();
    return;
  }
  const mine = turn;
  try {
    const signed = await request(`/v1/certificates/${id}?form=dsse`);
    await verify(await signed.arrayBuffer(), `certificate ${id}`, mine);
    await read(id, mine);
    if (mine !== turn) return;
    shown = id;
    byId("forms").hidden = false;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (mine !== turn) return;
    say("id", error.status === 404 ? "There is no certificate with this id that your key may see." : error.message);
    byId("id").focus();
  }
}

/** Does what a button is for; what comes of it is said only while the same certificate is shown. `work` gets what to say it with. */
async function asked(work) {
  const mine = turn;
  const tell = (text) => {
    if (mine === turn) byId("proved").textContent = text;
  };
  tell("");
  try {
    await work(tell);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    tell(error.message);
  }
}

/** Size and root of a signed head: its second and third line. */
function lines(checkpoint) {
  const [origin, size, root] = checkpoint.split("\n");
  return { origin, size, root };
}

async function head() {
  await asked(async () => {
    const { origin, size, root } = lines((await api("/v1/log")).checkpoint);
    const pairs = [["Name", origin], ["Entries (plans and certificates)", size], ["Root", root]];
    byId("head").replaceChildren(...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "mono" }, value)]));
  });
}

const drop = byId("drop");
drop.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  const file = event.dataTransfer.files[0];
  if (file) take(file);
});
byId("file").addEventListener("change", () => {
  const file = byId("file").files[0];
  if (file) take(file);
});
byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  lookup(byId("id").value.trim());
});
for (const button of document.querySelectorAll("#forms [data-form]")) {
  const { form } = button.dataset;
  button.addEventListener("click", () => asked(async () => download(`certificate.${ENDINGS[form]}`, await (await request(`/v1/certificates/${shown}?form=${form}`)).blob())));
}
byId("proofs").addEventListener("click", () =>
  asked(async (tell) => {
    const content = await (await request(`/v1/certificates/${shown}/proofs`)).blob();
    const proofs = JSON.parse(await content.text());
    const [proof, checkpoint] = proofs.certificate.split(/\n\n([^]*)/);
    const [, index, ...path] = proof.split("\n");
    const before = proofs.plan ? "; its plan was logged before it" : "";
    const pending = proofs.pending ? " Witnesses haven't been asked about it yet: save it again in a minute." : "";
    tell(`Entry ${Number(index.slice(6)) + 1} of ${lines(checkpoint).size} in the log; ${path.length} hashes lead from it to the signed root${before}. The file is saved; check it offline with "verify --proofs".${pending}`);
    download("proofs.json", content);
  }),
);
byId("print").addEventListener("click", () => window.print());
byId("keep-head").addEventListener("click", () => asked(async () => download("log-head.json", await (await request("/v1/log")).blob())));

function named() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id || id === "main") return; // the link past the navigation names the page's main part
  byId("id").value = id;
  if (key.get()) lookup(id);
  else byId("id-problem").textContent = "This needs a key. Enter one with the button at the top.";
}

window.addEventListener("hashchange", named);
document.addEventListener("zetadp-key", named);
head();
named();
