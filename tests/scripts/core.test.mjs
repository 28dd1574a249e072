// Rounding, cells of a spreadsheet, and numbers of the service.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { bound, cell, csv, figure, number, paced } from "./js/core.js";
import { asTyped } from "./js/form.js";

test("a bound is never rounded to the side that promises more", () => {
  let state = 12345;
  const random = () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648;
  };
  for (let turn = 0; turn < 20_000; turn += 1) {
    const value = (random() < 0.5 ? -1 : 1) * 10 ** (random() * 40 - 20);
    for (const digits of [2, 4, 6]) {
      const [up, down] = [Number(bound(value, { digits })), Number(bound(value, { digits, down: true }))];
      assert.ok(up >= value && down <= value, `${value} became ${up} and ${down}`);
      assert.ok(Math.abs(up - down) <= 2 * Math.abs(value) * 10 ** (1 - digits));
    }
  }
});

test("what is no number has a word", () => {
  assert.deepEqual([bound("Infinity"), bound(null), bound(0), bound("-Infinity"), figure("Infinity")], ["infinite", "none", "0", "minus infinite", "infinite"]);
  assert.equal(number("Infinity"), Infinity);
  assert.ok(Number.isNaN(number(null)));
});

test("no cell is a formula", () => {
  for (const text of ["=1+1", "+1x", "@a", "\tx", "-x"]) assert.equal(cell(text), `'${text}`);
  assert.equal(cell(-1.5), "-1.5");
  assert.equal(csv([["a,b", 'c"d'], [1, null]]), '"a,b","c""d"\r\n1,\r\n');
});

test("what is called often is done meanwhile, not only when the calls end", async () => {
  let done = 0;
  const call = paced(() => (done += 1), 5);
  const end = Date.now() + 100;
  while (Date.now() < end) {
    call();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.ok(done > 2, `done ${done} times`);
});

test("a typed number is shown as typed where it is the one that is computed with", () => {
  const shown = (text) => asTyped({ value: text });
  assert.deepEqual(["1e-5", " 0.000010 ", "1E-05", "0.1"].map(shown), ["1e-5", "0.000010", "1E-05", "0.1"]);
  assert.equal(shown("0.1000000000000000000001"), "0.1");
});
