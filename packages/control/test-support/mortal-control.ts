/** A control plane in a process of its own beside the one of the test, on the same database and node: one to be killed. */
import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect } from "vitest";
import { type Control, eventually } from "./control.ts";

export class MortalControl {
  readonly #child: ChildProcess;
  readonly #url: string;
  readonly #key: string;
  /** The signal it died of. */
  readonly died: Promise<NodeJS.Signals | null>;

  constructor(child: ChildProcess, url: string, key: string) {
    this.#child = child;
    this.#url = url;
    this.#key = key;
    this.died = new Promise((resolve) => child.once("exit", (_code, signal) => resolve(signal)));
  }

  /** The answer's status and body, or "broken" when the process died over the request. */
  async ask(call: string, body?: object): Promise<{ status: number; body: unknown } | "broken"> {
    const [method, target = ""] = call.split(" ");
    try {
      const response = await fetch(this.#url + target, {
        method,
        headers: { authorization: `Bearer ${this.#key}` },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: await response.json() };
    } catch {
      return "broken";
    }
  }

  /** False when it died before it could be asked. */
  async listens(): Promise<boolean> {
    let hasDied = false;
    void this.died.then(() => {
      hasDied = true;
    });
    return await eventually(async () => {
      if (hasDied) return false;
      if ((await this.ask("GET /v1/org")) === "broken") throw new Error("the process does not listen yet");
      return true;
    }, 30_000);
  }

  get host(): string {
    return new URL(this.#url).host;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

/** The request is answered by nobody: its process dies at the point. */
export async function killAt(control: Control, point: string, call: string, body?: object): Promise<void> {
  await withMortal(control, point, async (mortal) => {
    expect(await mortal.ask(call, body)).toBe("broken");
    expect(await mortal.died).toBe("SIGKILL");
  });
}

/**
 * So many seconds pass for the claims and leases on a session and its children that their process holds until it dies: as
 * many as they last.
 */
export async function letClaimsLapse(control: Control, id: string): Promise<void> {
  const columns = ["op_claimed_until", "provision_claimed_until", "destroy_after"];
  const shifts = columns.map((column) => `${column} = ${column} - interval '5 seconds'`);
  await control.sql.query(`update sessions set ${shifts} where id = $1 or parent_session_id = $1`, [id]);
}

/** Asked for nothing, a process dies of what its sweeps find. */
export async function killSweepingAt(control: Control, point: string): Promise<void> {
  await withProcess(control, point, async (mortal) => expect(await mortal.died).toBe("SIGKILL"));
}

/** How often in a row one may die of another's work. */
const LIVES = 3;

/**
 * Lets `work` use a process that kills itself the first time it gets to `crashAt`. Its sweeps may get there before it is
 * asked for anything, with what another test has left on the same database: then it is the turn of another process.
 */
export async function withMortal<T>(
  control: Control,
  crashAt: string,
  work: (mortal: MortalControl) => Promise<T>,
): Promise<T> {
  for (let lives = LIVES; lives > 0; lives--) {
    const answer = await withProcess(control, crashAt, async (mortal) =>
      (await mortal.listens()) ? { of: await work(mortal) } : undefined,
    );
    if (answer) return answer.of;
  }
  throw new Error(`${LIVES} processes died of ${crashAt} before they could be asked`);
}

async function withProcess<T>(
  control: Control,
  crashAt: string,
  use: (mortal: MortalControl) => Promise<T>,
): Promise<T> {
  const { databaseUrl, nodeSocket, controlDir } = control.settings;
  const dataDir = mkdtempSync(path.join(tmpdir(), "mortal-"));
  // Its own: what it remembers of its crash is nobody else's.
  cpSync(controlDir, path.join(dataDir, "control"), { recursive: true });
  const listen = `127.0.0.1:${await freePort()}`;
  const child = spawn(process.execPath, [new URL("../src/main.ts", import.meta.url).pathname], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      // What it loads has been compiled for another before.
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      DATABASE_URL: databaseUrl,
      VIV_NODE_SOCKET: nodeSocket,
      VIV_DATA_DIR: dataDir,
      VIV_LISTEN: listen,
      VIV_CONTROL_USER: "",
      // Whoever holds a lease beside it reaches the database as it does.
      VIV_SOLE_CONTROL: "1",
      VIV_LOG_LEVEL: "silent",
      VIV_CRASH_AT: crashAt,
    },
  });
  const mortal = new MortalControl(child, `http://${listen}`, control.key);
  try {
    return await use(mortal);
  } finally {
    mortal.kill();
    await mortal.died;
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port was given");
  return address.port;
}
