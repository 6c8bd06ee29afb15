/**
 * Registries at public names, for tests that have a network of their own: one that everybody may pull from, and one that wants
 * a credential. Names and addresses are this network's alone, and so is the hosts file, which has a mount over it.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { UndoStack } from "@vivarium/kit/undo-stack";
import type { MadeImage } from "../../packages/oci/test-support/image.ts";
import { push, startRegistry, USER } from "../../packages/oci/test-support/real-registry.ts";

const HOSTS = "/etc/hosts";
const PORT = 443;
const OPEN = { host: "registry.example.com", address: "151.101.9.53" };
const CLOSED = { host: "private.example.org", address: "151.101.9.54" };

export interface Registries {
  /** Names of the registries. */
  open: string;
  closed: string;
  credential: { registry: string; username: string; password: string };
  /** Environment of processes that trust their certificates. */
  env: Record<string, string>;
  /** Takes connections, and answers none, until the result is called. */
  hold(): () => void;
  close(): Promise<void>;
}

export async function startRegistries(images: Record<string, MadeImage>): Promise<Registries> {
  // Mounts and addresses of the host itself are not changed.
  if (Object.keys(networkInterfaces()).some((name) => !/^(lo|viv)/.test(name)))
    throw new Error("registries need a network of their own: run this in scripts/in-own-network");
  const undo = new UndoStack();
  try {
    return await start(images, undo);
  } catch (error) {
    await undo.unwind();
    throw error;
  }
}

async function start(images: Record<string, MadeImage>, undo: UndoStack): Promise<Registries> {
  const directory = mkdtempSync(join(tmpdir(), "registries-"));
  undo.push("directory", () => rmSync(directory, { recursive: true }));
  mkdirSync(join(directory, "content"));
  await fill(directory, images);
  const gate = new Gate();
  const cas: string[] = [];
  for (const { host, address, ...auth } of [OPEN, { ...CLOSED, auth: "htpasswd" as const }]) {
    const registry = await startRegistry({ directory, host, ...auth });
    undo.push(host, () => registry[Symbol.asyncDispose]());
    cas.push(registry.ca);
    execFileSync("ip", ["address", "add", `${address}/32`, "dev", "lo"]);
    undo.push(address, () => execFileSync("ip", ["address", "del", `${address}/32`, "dev", "lo"]));
    await gate.forward(address, registry.port, undo);
  }
  nameThem(directory, undo);
  const trusted = join(directory, "trusted.pem");
  writeFileSync(trusted, cas.join(""), { mode: 0o644 });
  // Control, which is another user, reads it too.
  execFileSync("chmod", ["755", directory]);
  return {
    open: OPEN.host,
    closed: CLOSED.host,
    credential: { registry: CLOSED.host, ...USER },
    env: { NODE_EXTRA_CA_CERTS: trusted },
    hold: () => gate.hold(),
    close: () => undo.unwind(),
  };
}

/** Each image under its repository, with the tag 1. */
async function fill(directory: string, images: Record<string, MadeImage>): Promise<void> {
  const registry = await startRegistry({ directory });
  try {
    for (const [repository, image] of Object.entries(images))
      await push(registry.port, repository, "1", image);
  } finally {
    await registry[Symbol.asyncDispose]();
  }
}

function nameThem(directory: string, undo: UndoStack): void {
  const file = join(directory, "hosts");
  const lines = [OPEN, CLOSED].map(({ host, address }) => `${address} ${host}\n`).join("");
  writeFileSync(file, `${readFileSync(HOSTS, "utf8")}\n${lines}`);
  execFileSync("mount", ["--bind", file, HOSTS]);
  undo.push("names", () => execFileSync("umount", [HOSTS]));
}

/** Passes connections on to registries, while it is open. */
class Gate {
  #opened: Promise<void> = Promise.resolve();

  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#opened = promise;
    return resolve;
  }

  async forward(address: string, port: number, undo: UndoStack): Promise<void> {
    const sockets = new Set<Socket>();
    const keep = (socket: Socket) => {
      sockets.add(socket);
      return socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    };
    const server = createServer(async (client) => {
      keep(client);
      await this.#opened;
      const upstream = keep(connect(port, "127.0.0.1"));
      client.pipe(upstream).pipe(client);
      client.on("close", () => upstream.destroy());
      upstream.on("close", () => client.destroy());
    });
    await new Promise<void>((resolve, reject) =>
      server.once("error", reject).listen(PORT, address, () => resolve()),
    );
    undo.push("forwarding", () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
  }
}
