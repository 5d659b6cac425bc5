// Numbers as people read them.

const COUNT = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const NONE = "–";

/** Milliseconds: three digits at most say what matters. */
export function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 99950) return `${Math.round(value / 1000)} s`;
  if (value >= 9995) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 999.5) return `${(value / 1000).toFixed(2)} s`;
  if (value >= 99.95) return `${Math.round(value)} ms`;
  if (value >= 9.995) return `${value.toFixed(1)} ms`;
  if (value >= 0.0995) return `${value.toFixed(2)} ms`;
  return value ? `${Math.round(value * 1000)} µs` : "0 ms";
}

/** A count with separators. */
export function count(value) {
  return value === null || value === undefined ? NONE : COUNT.format(value);
}

/** A share of one, in per cent; `whole` of 0 has no shares. */
export function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : NONE;
}

/** Unix seconds as a time of day here. */
export function clock(unixSeconds) {
  return CLOCK.format(new Date(unixSeconds * 1000));
}

/** Seconds as the two units that matter. */
export function duration(seconds) {
  const [minutes, hours, days] = [60, 3600, 86400];
  if (seconds < minutes) return `${Math.floor(seconds)} s`;
  if (seconds < hours) return `${Math.floor(seconds / minutes)} min`;
  if (seconds < days) return `${Math.floor(seconds / hours)} h ${Math.floor((seconds % hours) / minutes)} min`;
  return `${Math.floor(seconds / days)} d ${Math.floor((seconds % days) / hours)} h`;
}
