/** Measured values and the figures of a row. */
export interface Row {
  name: string;
  unit: string;
  n: number;
  p50: number;
  p95: number;
  /** The floor that the row is compared with, and the goal of that ratio or difference. */
  note?: string;
}

export function row(name: string, unit: string, values: number[], note?: string): Row {
  return { name, unit, n: values.length, p50: percentile(values, 50), p95: percentile(values, 95), note };
}

export function percentile(values: number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const index = Math.min(sorted.length - 1, Math.ceil((percent / 100) * sorted.length) - 1);
  return sorted[Math.max(0, index)] ?? Number.NaN;
}

/** Milliseconds that `work` takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/** One warm-up, then `n` measured rounds, one after the other. */
export async function repeated(n: number, round: () => Promise<number>): Promise<number[]> {
  await round();
  const values: number[] = [];
  for (let i = 0; i < n; i++) values.push(await round());
  return values;
}
