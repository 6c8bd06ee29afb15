/** The guest of one session, and probes in it. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Client } from "@vivarium/sdk";

const programOf = (name: string) => readFileSync(fileURLToPath(new URL(name, import.meta.url)), "utf8");
const PROBE = programOf("./guest-probe.py");
const ANSWERS = programOf("./guest-answers.py");
/** Path in guests of the certificate authority of the world. */
export const CA_FILE = "/workspace/world-ca.pem";
const PROBE_FILE = "/workspace/probe.py";
const ANSWERS_FILE = "/workspace/answers.py";

export type Probe =
  | {
      op: "tcp";
      host: string;
      port: number;
      chunks?: string[];
      /** Number of repeats of the last chunk. */
      again?: number;
      /** Seconds between chunks. */
      gap?: number;
      wait?: number;
    }
  | { op: "udp"; host: string; port: number; chunks: string[]; wait?: number }
  | {
      op: "tls";
      host: string;
      port: number;
      name?: string;
      header?: string;
      path?: string;
      verify?: boolean;
      wait?: number;
    }
  | { op: "dns"; name: string; type?: number; server?: string; tcp?: boolean; id?: number; wait?: number }
  | { op: "ping"; host: string; wait?: number }
  | { op: "ip"; host: string; protocol: number }
  | { op: "frame"; chunks: string[] }
  | { op: "get"; url: string; wait?: number }
  | { op: "look_up"; name: string };

export interface Outcome {
  /** The received bytes, as latin1. */
  got?: string;
  /** How the connection ended: "open", "closed" or the error's name. */
  end?: string;
  /** The error's name when there was no answer. */
  error?: string;
  why?: string;
  ms?: number;
  status?: number;
  rcode?: number;
  a?: string[];
  types?: number[];
  ttls?: number[];
}

export const hex = (text: string | Buffer) => Buffer.from(text as string, "latin1").toString("hex");

export class Guest {
  readonly id: string;
  readonly #client: Client;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** Writes the files that probes need into the guest. */
  async equip(ca: string): Promise<void> {
    const { files } = this.#client.session(this.id);
    await files.write(CA_FILE, ca);
    await files.write(PROBE_FILE, PROBE);
    await files.write(ANSWERS_FILE, ANSWERS);
  }

  /** Runs probes at the same time, as root, since some need raw sockets. */
  async probe(...probes: Probe[]): Promise<Outcome[]> {
    const asked = probes.map((probe) => ({ ca: CA_FILE, ...probe }));
    const command = ["sudo", "python3", PROBE_FILE, JSON.stringify(asked)];
    const { stdout, stderr } = await this.#client.sessions.exec(this.id, { command, timeout_ms: 120_000 });
    if (stdout === "") throw new Error(`the probes failed: ${stderr}`);
    return JSON.parse(stdout);
  }

  async one(probe: Probe): Promise<Outcome> {
    const [outcome] = await this.probe(probe);
    return outcome as Outcome;
  }

  /** Runs a shell command; returns its standard output, throws if it fails. */
  async run(script: string, timeoutMs = 120_000): Promise<string> {
    const result = await this.#client.sessions.exec(this.id, {
      command: ["sh", "-c", script],
      timeout_ms: timeoutMs,
    });
    if (result.exit_code === 0) return result.stdout;
    throw new Error(`${script}\nexit code ${result.exit_code}: ${result.stdout}${result.stderr}`);
  }

  /** Runs a shell command; returns its exit code and output, also if it fails. */
  async tries(script: string, timeoutMs = 120_000): Promise<{ code: number; text: string }> {
    const command = ["sh", "-c", script];
    const result = await this.#client.sessions.exec(this.id, { command, timeout_ms: timeoutMs });
    return { code: result.exit_code, text: result.stdout + result.stderr };
  }

  /** Starts a named process, which runs beside the test and survives pauses. */
  async start(name: string, script: string): Promise<void> {
    await this.#client.session(this.id).processes.start({ name, command: ["sh", "-c", script] });
  }
  /** Starts a named process that has many answers of a bound origin open, and asks again at once for each that ends. */
  async startAsking(name: string, ask: { host: string; path: string; atOnce: number }): Promise<void> {
    await this.start(name, `exec python3 ${ANSWERS_FILE} ${ask.host} '${ask.path}' ${ask.atOnce}`);
  }
}
