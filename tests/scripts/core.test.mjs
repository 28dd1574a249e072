// Rounding, cells of a spreadsheet, and numbers of the service.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { bound, cell, csv, figure, number } from "./js/core.js";

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
