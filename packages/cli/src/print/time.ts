/** Durations and times of day as short text. */
const SECOND_MS = 1000;
const UNITS = [
  { name: "d", ms: 24 * 60 * 60 * SECOND_MS },
  { name: "h", ms: 60 * 60 * SECOND_MS },
  { name: "m", ms: 60 * SECOND_MS },
  { name: "s", ms: SECOND_MS },
];

/** Age of something in its largest unit: `5s`, `12m`, `3h`, `2d`. */
export function formatAge(ms: number): string {
  return figures(ms)[0] ?? "0s";
}

/** Time until something, in two units (`59s`, `1h59m`, `6d23h`): with one, two hours would soon read as one hour. */
export function formatAhead(ms: number): string {
  return figures(ms).join("") || "0s";
}

export function formatSeconds(ms: number): string {
  return `${(ms / SECOND_MS).toFixed(ms < 10 * SECOND_MS ? 2 : 1)} s`;
}

/** Local time of day, as `10:00:00`. */
export function formatClock(at: Date): string {
  return at.toTimeString().slice(0, 8);
}

/** Texts of the largest unit that fits and of the next one, without zeros. */
function figures(ms: number): string[] {
  const largest = UNITS.findIndex((unit) => ms >= unit.ms);
  if (largest < 0) return [];
  let left = ms;
  return UNITS.slice(largest, largest + 2).flatMap((unit) => {
    const count = Math.floor(left / unit.ms);
    left -= count * unit.ms;
    return count > 0 ? [`${count}${unit.name}`] : [];
  });
}
