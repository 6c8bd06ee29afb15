import { statfs } from "node:fs/promises";

export async function diskSpace(dir: string): Promise<{ free_bytes: number; total_bytes: number }> {
  const stats = await statfs(dir);
  return { free_bytes: stats.bavail * stats.bsize, total_bytes: stats.blocks * stats.bsize };
}
