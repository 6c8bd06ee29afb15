/** A control plane in a separate process, on the database and node of the test, that the test kills. */
import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { expect } from "vitest";
import { type Control, eventually } from "./control.ts";

export class MortalControl {
  readonly #child: ChildProcess;
  readonly #url: string;
  readonly #key: string;
  /** The signal that killed it. */
  readonly died: Promise<NodeJS.Signals | null>;

  constructor(child: ChildProcess, url: string, key: string) {
    this.#child = child;
    this.#url = url;
    this.#key = key;
    this.died = new Promise((resolve) => child.once("exit", (_code, signal) => resolve(signal)));
  }

  /** The answer's status and body, or "broken" if the process died during the request. */
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

  /** False if the process died before it listened. */
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

/** Sends a request whose process dies at the crash point, so that it gets no answer. */
export async function killAt(control: Control, point: string, call: string, body?: object): Promise<void> {
  await withMortal(control, point, async (mortal) => {
    expect(await mortal.ask(call, body)).toBe("broken");
    expect(await mortal.died).toBe("SIGKILL");
  });
}

/** Makes the claims and leases of a dead process on a session and its children lapse, by moving them into the past. */
export async function letClaimsLapse(control: Control, id: string): Promise<void> {
  const columns = ["op_claimed_until", "provision_claimed_until", "destroy_after"];
  const shifts = columns.map((column) => `${column} = ${column} - interval '5 seconds'`);
  await control.sql.query(`update sessions set ${shifts} where id = $1 or parent_session_id = $1`, [id]);
}

/** Starts a process and sends no request. Resolves once its sweeps have killed it at the crash point. */
export async function killSweepingAt(control: Control, point: string): Promise<void> {
  const died = async (mortal: MortalControl) => expect(await mortal.died).toBe("SIGKILL");
  await withProcess(control, point, died, { actsOnLeases: true });
}

const MAX_PROCESSES = 3;

/**
 * Runs `work` with a process that kills itself when it first gets to `crashAt`. Hazard: its sweeps may get there
 * before `work` does, because another test left work in the database. So the process acts on no lease of others in
 * its first 15 s, and if it dies before it listens, another one is started.
 */
export async function withMortal<T>(
  control: Control,
  crashAt: string,
  work: (mortal: MortalControl) => Promise<T>,
): Promise<T> {
  for (let started = 0; started < MAX_PROCESSES; started++) {
    const done = await withProcess(control, crashAt, async (mortal) =>
      (await mortal.listens()) ? { answer: await work(mortal) } : undefined,
    );
    if (done) return done.answer;
  }
  throw new Error(`${MAX_PROCESSES} processes died at ${crashAt} before they listened`);
}

async function withProcess<T>(
  control: Control,
  crashAt: string,
  use: (mortal: MortalControl) => Promise<T>,
  { actsOnLeases = false } = {},
): Promise<T> {
  const { databaseUrl, nodeSocket, controlDir, hasArchives } = control.settings;
  const dataDir = mkdtempSync(path.join(tmpdir(), "mortal-"));
  // A separate folder, because the process notes there that it has crashed.
  cpSync(controlDir, path.join(dataDir, "control"), { recursive: true });
  const listen = `127.0.0.1:${await freePort()}`;
  const child = spawn(process.execPath, [new URL("../src/main.ts", import.meta.url).pathname], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      // Reuses the code that another process has compiled.
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      DATABASE_URL: databaseUrl,
      VIV_NODE_SOCKET: nodeSocket,
      VIV_DATA_DIR: dataDir,
      VIV_OBJECTS_DIR: path.join(controlDir, "objects"),
      VIV_ARCHIVES: hasArchives ? "1" : "0",
      VIV_LISTEN: listen,
      VIV_CONTROL_USER: "",
      // A process that is not the only one lets the others renew their leases before it takes over what has lapsed.
      VIV_SOLE_CONTROL: actsOnLeases ? "1" : "0",
      VIV_LOG_LEVEL: "silent",
      VIV_CRASH_AT: crashAt,
      ...kekEnvironment(control),
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

/** The key-encryption keys of the control that the process stands beside. */
function kekEnvironment({ settings: { kekSource } }: Control): Record<string, string> {
  if (kekSource?.kind === "text") return { VIV_KEK: kekSource.text };
  return kekSource?.kind === "file" ? { VIV_KEK_FILE: kekSource.file } : {};
}
