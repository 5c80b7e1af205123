// Scales, ticks and number formatting.

/** Returns about `count` round values between low and high. */
function linearTicks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step =
      [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push(i * step);
  return ticks;
}

/**
 * Returns the powers of ten between low and high; if there are few, also their halves and fifths.
 */
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const decades = last - first;
  if (decades <= 1) return linearTicks(low, high, count).filter((tick) => tick > 0);
  const factors = decades <= 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

/** Returns a function from data to pixels, with its inverse and ticks. */
function makeScale(low, high, from, to, log) {
  const forward = log ? Math.log10 : (value) => value;
  const backward = log ? (value) => 10 ** value : (value) => value;
  const a = forward(low), b = forward(high);
  const scale = (value) => from + ((forward(value) - a) / (b - a || 1)) * (to - from);
  scale.invert = (pixel) => backward(a + ((pixel - from) / (to - from || 1)) * (b - a));
  scale.ticks = (count) => (log ? logTicks(low, high, count) : linearTicks(low, high, count));
  return scale;
}

const kUnits = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Formats a number for ticks: 1500000 is "1.5M", 0.00025 is "2.5e-4". */
function shortNumber(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e15)
    return value.toExponential(1).replace(".0e", "e").replace("e-0", "e-").replace("e+", "e");
  const unit = size >= 1e4 && kUnits.find(([limit]) => size >= limit);
  const scaled = unit ? value / unit[0] : value;
  return String(+scaled.toPrecision(4)) + (unit ? unit[1] : "");
}

/** Formats a number for tooltips, with six digits. */
function exactNumber(value) {
  if (value === null || !Number.isFinite(value)) return "not a number";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(4);
  if (size >= 1e6) return Math.round(value).toLocaleString("en");
  return String(+value.toPrecision(6));
}

/** Returns the debiased exponential moving average, as in TensorBoard; gaps stay gaps. */
function smooth(values, weight) {
  if (weight <= 0) return values;
  let mean = 0, mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

/** Interpolates y at x linearly between points of ascending xs. */
function interpolate(xs, ys, x) {
  if (xs.length === 0) return null;
  const at = lowerBound(xs, x);
  if (at === 0) return xs.length > 1 && xs[0] > x ? (ys[0] * x) / xs[0] : ys[0];
  if (at === xs.length) return ys[xs.length - 1];
  const share = (x - xs[at - 1]) / (xs[at] - xs[at - 1]);
  return ys[at - 1] + share * (ys[at] - ys[at - 1]);
}

/** Returns the first index whose x is not below the given one. */
function lowerBound(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/** Returns the index of the point nearest to x. */
function nearest(xs, x) {
  const at = lowerBound(xs, x);
  if (at === 0) return 0;
  if (at === xs.length) return xs.length - 1;
  return x - xs[at - 1] < xs[at] - x ? at - 1 : at;
}
