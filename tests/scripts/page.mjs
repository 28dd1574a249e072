// As much of a browser as scripts touch when they are loaded: no element does anything. The page carries the service's words.

import { readFileSync } from "node:fs";

class Nothing {
  dataset = {};
  classList = { toggle() {} };
  addEventListener() {}
}

globalThis.document = {
  documentElement: Object.assign(new Nothing(), { dataset: { terms: readFileSync(new URL("terms.json", import.meta.url), "utf8") } }),
  addEventListener() {},
  getElementById: () => new Nothing(),
};
globalThis.sessionStorage = { getItem: () => null };
globalThis.localStorage = { getItem: () => null };
