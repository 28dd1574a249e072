// A request as something to take along: a line for a shell, a program, its JSON.

import { byId, copy } from "./core.js";

function exported(what, { path, body }) {
  const json = JSON.stringify(body, null, 2);
  const here = location.origin;
  switch (what) {
    case "link":
      return location.href;
    case "json":
      return json;
    case "curl":
      return `curl -sS ${here}${path} -H 'content-type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
    default:
      return `import json, urllib.request\n\nbody = json.loads(r"""${json}""")\nrequest = urllib.request.Request("${here}${path}", json.dumps(body).encode(), {"content-type": "application/json"})\nprint(json.dumps(json.load(urllib.request.urlopen(request))))\n`;
  }
}

/** Lets the page's buttons copy what `shown` returns: the request of the last good answer, or null. */
export function offer(shown) {
  byId("exports").addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button || !shown()) return;
    const words = (button.dataset.words ??= button.textContent);
    button.textContent = (await copy(exported(button.dataset.copy, shown()), button.dataset.copy)) ? "Copied" : "Not allowed";
    setTimeout(() => {
      button.textContent = words;
    }, 1500);
  });
}
