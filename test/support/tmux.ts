/** Runs a shell in a real terminal, through tmux: keys, screen contents, size. */
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { eventually } from "./eventually.ts";

const PATIENCE_MS = 60_000;
const run = promisify(execFile);

export class Tmux {
  readonly #socket: string;
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#socket = join(folder, "tmux");
  }

  /** Starts a shell with only this environment and the prompt `HOST> `. */
  static async open(env: Record<string, string>): Promise<Tmux> {
    const tmux = new Tmux(await mkdtemp(join(tmpdir(), "viv-tmux-")));
    const variables = Object.entries({ ...env, PS1: "HOST> " }).map(([name, value]) => `${name}=${value}`);
    const shell = ["env", "-i", ...variables, "TERM=tmux-256color", "bash", "--norc", "--noprofile"];
    await tmux.#call("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", ...shell);
    await tmux.shows(/^HOST> $/m);
    return tmux;
  }

  async type(text: string): Promise<void> {
    await this.#call("send-keys", "-l", text);
  }

  /** Presses keys by tmux's names: Enter, C-], C-x. */
  async press(...keys: string[]): Promise<void> {
    await this.#call("send-keys", ...keys);
  }

  async enter(line: string): Promise<void> {
    await this.type(line);
    await this.press("Enter");
  }

  /** Clears the screen and enters a line: everything on the screen then comes from this line. */
  async enterOnEmpty(line: string): Promise<void> {
    await this.#call("send-keys", "-R");
    await this.enter(line);
  }

  async resize(columns: number, rows: number): Promise<void> {
    await this.#call("resize-window", "-x", String(columns), "-y", String(rows));
  }

  /** Contents of the screen without trailing blanks, except that of the prompt. */
  async screen(): Promise<string> {
    return (await this.#call("capture-pane", "-p", "-J")).replace(/HOST>\s*$/, "HOST> ");
  }

  async shows(pattern: RegExp, withinMs = PATIENCE_MS): Promise<RegExpExecArray> {
    return await eventually(
      async () => {
        const screen = await this.screen();
        const match = pattern.exec(screen);
        if (!match) throw new Error(`the screen does not show ${pattern}:\n${screen}`);
        return match;
      },
      withinMs,
      200,
    );
  }

  /** A variable of the pane: `alternate_on`, `cursor_flag`, `pane_pid`. */
  async fact(name: string): Promise<string> {
    return (await this.#call("display-message", "-p", `#{${name}}`)).trim();
  }

  async close(): Promise<void> {
    await this.#call("kill-server").catch(() => {});
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #call(...argv: string[]): Promise<string> {
    return (await run("tmux", ["-S", this.#socket, ...argv])).stdout;
  }
}
