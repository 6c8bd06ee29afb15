/** A proxy to a database that a test can sever: a unix socket that forwards everything, or refuses connections. */
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const SOCKET_NAME = ".s.PGSQL.5432";

export class DatabaseLine {
  /** The database's address through this proxy. */
  readonly url: string;
  readonly #target: string;
  readonly #folder = mkdtempSync(path.join(tmpdir(), "database-line-"));
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  constructor(databaseUrl: string) {
    const url = new URL(databaseUrl);
    this.#target = path.join(url.searchParams.get("host") ?? "", SOCKET_NAME);
    url.searchParams.set("host", this.#folder);
    this.url = url.href;
  }

  async restore(): Promise<void> {
    this.#server = createServer((near) => {
      const far = connect(this.#target);
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          this.#sockets.delete(one);
          other.destroy();
        });
        one.pipe(other);
      }
    });
    await new Promise<void>((resolve) => this.#server?.listen(path.join(this.#folder, SOCKET_NAME), resolve));
  }

  /** Breaks every connection and refuses new ones. */
  async sever(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => (server ? server.close(() => resolve()) : resolve()));
    rmSync(path.join(this.#folder, SOCKET_NAME), { force: true });
  }

  async close(): Promise<void> {
    await this.sever();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
