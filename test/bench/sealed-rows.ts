/**
 * Rows about sealed state: pauses and wakes of a session with a secret, whose memory and disk are encrypted, beside the same of a
 * session without one (docs/design/sealed-state.md).
 */
import { sleep } from "@vivarium/kit/clock";
import { Client } from "@vivarium/sdk";
import type { ServiceFacts } from "../support/service.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const MEMORY_MB = 100;
const DISK_MB = 128;
const IN_MEMORY = `import os,time; b=os.urandom(1<<20)*${MEMORY_MB}; open("/workspace/ready","w").close(); time.sleep(600)`;

/** Work of a session before it is paused: the more it changes, the more there is to encrypt. */
const WORKS = [
  { name: "", script: "python3 -c 'print(sum(range(1000)))'" },
  {
    name: ` with ${MEMORY_MB} MB changed`,
    script: `python3 -c '${IN_MEMORY}' > /dev/null 2>&1 & until [ -e /workspace/ready ]; do sleep 0.1; done`,
  },
  {
    name: ` with ${DISK_MB} MB written to the disk`,
    script: `head -c ${DISK_MB}M /dev/urandom > /workspace/written && sync`,
  },
];
const SECRETS = { secrets: { BENCH_SECRET: "canary" } };
const MOVES = ["pause", "wake"] as const;

export async function sealedRows(facts: ServiceFacts, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const rows: Row[] = [];
  for (const { name, script } of WORKS) {
    const plain: Life[] = [];
    const sealed: Life[] = [];
    // Alternating, so that a noisy minute of the host affects both alike. The first round warms up.
    for (let i = 0; i <= n; i++) {
      plain.push(await oneLife(client, {}, script));
      sealed.push(await oneLife(client, SECRETS, script));
    }
    for (const move of MOVES) {
      const of = (lives: Life[]) => lives.slice(1).map((life) => life[move]);
      const ratio = percentile(of(sealed), 50) / percentile(of(plain), 50);
      rows.push(
        row(`${move}, plain${name}`, "ms", of(plain)),
        row(`${move}, sealed${name}`, "ms", of(sealed), `${ratio.toFixed(2)} × plain`),
      );
    }
  }
  return rows;
}

type Life = Record<(typeof MOVES)[number], number>;

/** To the answer of the pause; from the wake's call to the end of its first exec. */
async function oneLife(client: Client, request: object, script: string): Promise<Life> {
  const { session_id: id } = await client.sessions.create(request);
  try {
    await client.sessions.exec(id, { command: ["sh", "-c", script], timeout_ms: 120_000 });
    const pause = await timed(() => client.sessions.pause(id));
    // Cleaning up after the pause must not count for the wake.
    await sleep(1_000);
    const wake = await timed(() => client.sessions.exec(id, { command: ["true"] }));
    return { pause, wake };
  } finally {
    await client.sessions.delete(id);
  }
}
