"use strict";
(() => {
  const PREFIX = "#/components/schemas/";
  /** Parts of a schema; one that has more is written out once, and after that only named. */
  const MOST_PARTS = 60;

  // Light alone: some of its colours can't be set, and on a dark ground nobody could read them.
  const ink = "#16202c";
  const raised = "#f4f6f9";
  const accent = "#5429c8";
  const fonts = 'system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
  const place = document.getElementById("redoc");

  // Samples scroll, and are to be reached with the keyboard.
  const mend = () => {
    for (const sample of place.querySelectorAll("pre:not([tabindex])")) sample.tabIndex = 0;
  };
  new MutationObserver(mend).observe(place, { childList: true, subtree: true });

  /** Calls `work` for every reference below, with the object that holds it and its name. */
  function references(node, work) {
    if (node === null || typeof node !== "object") return;
    if (typeof node.$ref === "string" && node.$ref.startsWith(PREFIX)) work(node, node.$ref.slice(PREFIX.length));
    for (const [key, value] of Object.entries(node)) if (key !== "discriminator" && !key.startsWith("example")) references(value, work);
  }

  /** Each schema's names that it refers to, itself or through others. */
  function reached(schemas) {
    const next = new Map();
    for (const [name, schema] of Object.entries(schemas)) {
      const named = new Set();
      references(schema, (_, to) => named.add(to));
      next.set(name, named);
    }
    const found = new Map();
    for (const name of next.keys()) {
      const seen = new Set();
      const open = [name];
      while (open.length) {
        for (const to of next.get(open.pop()) || []) {
          if (seen.has(to)) continue;
          seen.add(to);
          open.push(to);
        }
      }
      found.set(name, seen);
    }
    return found;
  }

  /**
   * Without what tells a union's parts apart: ReDoc would follow it past what was cut, and each part's own "kind" says the same. And without
   * the type that FastAPI gives to lines of JSON, "string", which their parts haven't.
   */
  function plain(node) {
    if (node === null || typeof node !== "object") return;
    if (node.discriminator?.propertyName) delete node.discriminator;
    if (Array.isArray(node.anyOf) && typeof node.type === "string") delete node.type;
    Object.values(node).forEach(plain);
  }

  function named(name, words) {
    const title = name.replace(/-(In|Out)put$/, "").split("__").pop();
    return { type: "object", title, description: `${title}: ${words}` };
  }

  function cut(holder, name, words) {
    delete holder.$ref;
    Object.assign(holder, named(name, words));
  }

  /**
   * The description as it can be read: ReDoc writes out every schema wherever it occurs, and events hold events, so that the whole would be
   * without end in practice. What holds itself is named where it comes again, and what is large is written out where it comes first.
   */
  function readable(description) {
    const { schemas } = description.components;
    plain(description);
    const within = reached(schemas);
    for (const [name, schema] of Object.entries(schemas)) {
      references(schema, (holder, to) => {
        if (within.get(to)?.has(name)) cut(holder, to, "again, as described where it comes first");
      });
    }
    const sizes = new Map();
    const size = (name) => {
      if (!sizes.has(name)) {
        let sum = 1;
        references(schemas[name], (_, to) => {
          sum += size(to);
        });
        sizes.set(name, sum);
      }
      return sizes.get(name);
    };
    const written = new Map();
    for (const [path, operations] of Object.entries(description.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        references(operation, (holder, to) => {
          const title = to.replace(/-(In|Out)put$/, "");
          if (!schemas[to] || size(to) < MOST_PARTS) return;
          if (written.has(title)) cut(holder, to, `as written out at ${written.get(title)}`);
          else written.set(title, `${method.toUpperCase()} ${path}`);
        });
      }
    }
    return description;
  }

  const options = {
    // Its search runs in a worker made of a blob, which the policy of this page doesn't allow; the browser's own finds everything.
    disableSearch: true,
    nativeScrollbars: true,
    hideDownloadButtons: true,
    scrollYOffset: () => document.querySelector(".docs-bar").offsetHeight,
    theme: {
      colors: { primary: { main: accent }, text: { primary: ink, secondary: ink } },
      typography: {
        fontFamily: fonts,
        headings: { fontFamily: fonts },
        code: { fontFamily: 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace', color: accent, backgroundColor: raised },
        links: { color: accent, visited: accent },
      },
      sidebar: { backgroundColor: raised, textColor: ink },
      schema: { nestedBackground: raised, typeNameColor: ink, typeTitleColor: ink, requireLabelColor: "#a11d1d" },
    },
  };

  async function start() {
    try {
      const answer = await fetch("/openapi.json", { redirect: "error" });
      window.Redoc.init(readable(await answer.json()), options, place);
    } catch {
      place.textContent = "The description can't be read at the moment; the service may be restarting. Reload this page.";
    }
  }
  start();
})();
