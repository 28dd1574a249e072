// What a job's events say of its course: epsilon and metrics by step, and how fast it is.

import { number } from "./core.js";

const SPAN = 10_000; // milliseconds over which speed is measured

/** The course of one run, made of its events. */
export class History {
  constructor() {
    /** @type {{step: number, steps: number, epsilon: number, time: number}[]} */
    this.progress = [];
    /** @type {Map<string, [number, number, number][]>} by name, (step, value, time) */
    this.metrics = new Map();
    this.started = NaN;
  }

  /** Takes one event, in order. What came after the checkpoint of another attempt is done again. */
  take(event) {
    const told = event.data.data;
    const time = Date.parse(event.data.time);
    if (event.type === "started") {
      if (Number.isNaN(this.started)) this.started = time;
      this.progress = this.progress.filter(({ step }) => step <= told.resumed_from_step);
      for (const [name, all] of this.metrics) this.metrics.set(name, all.filter(([step]) => step <= told.resumed_from_step));
    } else if (event.type === "progress") {
      this.progress.push({ step: told.step, steps: told.steps, epsilon: number(told.epsilon), time });
    } else if (event.type === "metrics") {
      for (const [name, value] of Object.entries(told.metrics)) {
        if (!this.metrics.has(name)) this.metrics.set(name, []);
        this.metrics.get(name).push([told.step, number(value), time]);
      }
    }
  }

  /** Steps a second over the last seconds that were told of; NaN where that says nothing. */
  get speed() {
    const last = this.progress.at(-1);
    if (!last) return NaN;
    const before = this.progress.find((one) => one.time >= last.time - SPAN && one.step < last.step);
    return before && last.time > before.time ? (1000 * (last.step - before.step)) / (last.time - before.time) : NaN;
  }

  /** Epsilon by step, each with its time, as `metrics` has its figures. */
  get spent() {
    return this.progress.filter(({ epsilon }) => Number.isFinite(epsilon)).map(({ step, epsilon, time }) => [step, epsilon, time]);
  }

  /**
   * Where something lies along the axis that is chosen: step, seconds or epsilon. Epsilon is what was reported at its step or first after it:
   * what was reported before is less than it cost. NaN until there is such a report.
   * @param {number} step
   * @param {number} time when it was told, in milliseconds
   * @param {string} axis
   */
  along(step, time, axis) {
    if (axis === "step") return step;
    if (axis === "seconds") return (time - this.started) / 1000;
    return this.progress.find((one) => one.step >= step)?.epsilon ?? NaN;
  }
}
