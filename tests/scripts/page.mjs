// As much of a browser as scripts touch when they are loaded: no element does anything.

class Nothing {
  dataset = {};
  classList = { toggle() {} };
  addEventListener() {}
}

globalThis.document = {
  documentElement: new Nothing(),
  addEventListener() {},
  getElementById: () => new Nothing(),
};
globalThis.sessionStorage = { getItem: () => null };
globalThis.localStorage = { getItem: () => null };
