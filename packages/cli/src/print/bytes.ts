const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes as short text: `512 B`, `1.5 KiB`, `640 MiB`, with one decimal below ten. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const text = unit > 0 && value < 9.95 ? value.toFixed(1) : String(Math.round(value));
  return `${text} ${UNITS[unit]}`;
}
