/** A service whose saved states are archived in a directory, with a node that packs and unpacks files of its own. */
import { readdirSync } from "node:fs";
import path from "node:path";
import { FakeNode } from "@vivarium/contract/test-support/node";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { expect } from "vitest";
import { createApp } from "../src/app.ts";
import { type Answer, Control, eventually, startControl } from "./control.ts";
import { silentLog } from "./database.ts";

export const WITHIN_MS = 60_000;

export class ArchiveWorld {
  readonly control: Control;

  constructor(control: Control) {
    this.control = control;
  }

  static async start(
    more: { requireDurablePause?: boolean; hasArchives?: boolean; hasWarmTier?: boolean } = {},
  ): Promise<ArchiveWorld> {
    return new ArchiveWorld(await startControl({ hasArchives: true, ...more }));
  }

  get objectsDir(): string {
    return path.join(this.control.settings.controlDir, "objects", "objects");
  }

  /** Files of the chunks and contents whose path has this text. */
  objectsWith(text: string): string[] {
    return readdirSync(this.objectsDir, { recursive: true })
      .map(String)
      .filter((name) => /\/[0-9a-f]{64}@$/.test(name) && name.includes(text));
  }

  async openStore(): Promise<DirectoryStore> {
    return await DirectoryStore.open(path.dirname(this.objectsDir));
  }

  // biome-ignore lint/suspicious/noExplicitAny: tests look into rows of every shape
  async rows(text: string, values: unknown[] = []): Promise<any[]> {
    return (await this.control.sql.query(text, values)).rows;
  }

  async record(id: string, by = this.control): Promise<Answer["body"]> {
    return (await by.ask(`GET /v1/sessions/${id}`)).body;
  }

  async pausedWith(content: string): Promise<string> {
    const id = await this.control.createLive();
    await this.control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content } });
    expect((await this.control.ask(`POST /v1/sessions/${id}/pause`)).body.state).toBe("paused");
    return id;
  }

  async untilArchived(id: string, status = "complete"): Promise<Answer["body"]> {
    return await eventually(async () => {
      const body = await this.record(id);
      expect(body.archive).toMatchObject({ status });
      return body;
    }, WITHIN_MS);
  }

  async snapshotOf(id: string): Promise<string> {
    return (await this.rows("select snapshot_id from sessions where id = $1", [id]))[0].snapshot_id;
  }

  async spaceOf(id: string): Promise<string> {
    return (await this.rows("select space_id from archives where session_id = $1", [id]))[0].space_id;
  }

  /**
   * The service with another node, whose data directory is empty, until `work` is done. The first node is away meanwhile:
   * its control would hold a machine of the other for lost.
   */
  async withEmptyNode<T>(work: (other: Control) => Promise<T>): Promise<T> {
    const node = new FakeNode({ isScripted: true });
    await node.listen();
    const settings = { ...this.control.settings, nodeSocket: node.socketPath };
    const app = await createApp(settings, silentLog);
    const { key, sql } = this.control;
    await this.control.node.goDown();
    try {
      return await work(new Control({ app, node, key, sql, settings }));
    } finally {
      await app.close();
      await node.close();
      await this.control.node.listen();
    }
  }

  /** After each test. */
  async clear(): Promise<void> {
    this.control.node.onPack = () => {};
    this.control.node.onUnpack = () => {};
    await this.control.destroyAll();
  }
}
