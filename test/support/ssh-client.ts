/** Runs the system's SSH clients against sessions, through their tunnels, without settings of this machine's user. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { service } from "./http.ts";

const VIV = join(import.meta.dirname, "../../packages/cli/src/main.ts");
const NEEDED = { ssh: "openssh-client", rsync: "rsync", git: "git", curl: "curl" };

export interface Finished {
  status: number | null;
  stdout: string;
  stderr: string;
}

interface RunOptions {
  input?: string | Buffer;
  env?: Record<string, string>;
}

/** Fails if a program that the test needs is not installed: skipping would hide that. */
export function assertInstalled(): void {
  for (const [program, debian] of Object.entries(NEEDED)) {
    try {
      execFileSync("which", [program]);
    } catch {
      throw new Error(`${program} is not installed, and this test runs it: apt-get install ${debian}`);
    }
  }
}

/**
 * Ends a client of SSH. OpenSSH 9.2 notes a signal that comes just before its poll() and then sleeps in it; the next signal
 * wakes it.
 */
export async function endSsh(client: ChildProcess): Promise<void> {
  if (client.exitCode !== null || client.signalCode !== null) return;
  const exited = once(client, "exit");
  client.kill();
  const again = setInterval(() => client.kill(), 1_000);
  await exited;
  clearInterval(again);
}

/** Host name of a session in the output of `viv ssh-config`. */
export const hostOf = (sessionId: string) => `viv-${sessionId}`;

/** Settings without the keys, agents and questions of this machine's user; ssh uses the first value of an option. */
const ALONE = ["Host *", "  BatchMode yes", "  IdentityFile none", "  IdentityAgent none"];

/** A home directory: the output of `viv ssh-config` for any session, and the known host keys. */
export class SshClient {
  readonly folder: string;
  readonly #config: string;
  readonly #apiKey: string;

  constructor(folder: string, apiKey = service.apiKey) {
    this.folder = folder;
    this.#apiKey = apiKey;
    this.#config = join(folder, "config");
    const printed = execFileSync(process.execPath, [VIV, "ssh-config"], { env: this.#env, encoding: "utf8" });
    writeFileSync(this.#config, `${printed}\n${ALONE.join("\n")}\n`);
  }

  /** Command of ssh for programs that have an option for it. */
  get command(): string {
    return `ssh -F ${this.#config}`;
  }

  hostKeyOf(sessionId: string): string | undefined {
    const file = join(this.folder, ".local/state/vivarium/known_hosts");
    const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n") : [];
    return lines.find((line) => line.startsWith(`${hostOf(sessionId)} `))?.split(" ")[2];
  }

  /** Runs `viv ssh`. */
  viv(words: string[], options?: RunOptions): Promise<Finished> {
    return this.run(process.execPath, [VIV, "ssh", ...words], options);
  }

  ssh(words: string[], options?: RunOptions): Promise<Finished> {
    return this.run("ssh", ["-F", this.#config, ...words], options);
  }

  /** Runs scp or sftp, which take the same options as ssh. */
  copy(program: "scp" | "sftp", words: string[], options?: RunOptions): Promise<Finished> {
    return this.run(program, ["-F", this.#config, ...words], options);
  }

  async run(program: string, words: string[], { input = "", env = {} }: RunOptions = {}): Promise<Finished> {
    const child = this.spawn(program, words, env);
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
    const [stdout, stderr] = [textOf(child.stdout), textOf(child.stderr)];
    const status = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", resolve);
    });
    return { status, stdout: await stdout, stderr: await stderr };
  }

  /** Starts an ssh in the background, until the test ends it. */
  start(words: string[]): ChildProcess {
    return this.spawn("ssh", ["-F", this.#config, ...words]);
  }

  startViv(words: string[]): ChildProcess {
    return this.spawn(process.execPath, [VIV, "ssh", ...words]);
  }

  spawn(program: string, words: string[], env: Record<string, string> = {}): ChildProcess {
    return spawn(program, words, { cwd: this.folder, env: { ...this.#env, ...env } });
  }

  get #env(): Record<string, string> {
    const { PATH = "" } = process.env;
    return { PATH, HOME: this.folder, LANG: "C", VIV_URL: service.url, VIV_API_KEY: this.#apiKey };
  }
}

async function textOf(stream: ChildProcess["stdout"]): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream ?? []) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
