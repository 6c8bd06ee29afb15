/** Restores rows from a backup, and starts services on them. */
import { expect } from "vitest";
import { type App, createApp } from "../src/app.ts";
import { type Control, eventually } from "./control.ts";
import { silentLog } from "./database.ts";

export class Backups {
  readonly services: App[] = [];
  readonly #control: Control;

  constructor(control: Control) {
    this.#control = control;
  }

  /** Saves the rows. The returned function restores them, and deletes the snapshot names recorded since. */
  async backUp(...ids: string[]): Promise<() => Promise<void>> {
    const { sql } = this.#control;
    await sql.query("drop table if exists backup, named");
    await sql.query("create table backup as select * from sessions where id = any($1)", [ids]);
    await sql.query("create table named as select id from snapshot_names");
    const { rows } = await sql.query(
      "select column_name from information_schema.columns where table_name = 'sessions' and column_name <> 'id'",
    );
    const columns = rows.map(({ column_name: name }) => `"${name}"`).join(", ");
    return async () => {
      for (const id of ids) await this.untilQuiet(id);
      await sql.query(
        `with forgotten as (delete from snapshot_names where id not in (select id from named))
         update sessions set (${columns}) = (select ${columns} from backup where backup.id = sessions.id)
           where id = any($1)`,
        [ids],
      );
    };
  }

  async startService(): Promise<App> {
    const service = await createApp(this.#control.settings, silentLog);
    this.services.push(service);
    service.startSweeps();
    return service;
  }

  async closeServices(): Promise<void> {
    for (const service of this.services.splice(0)) await service.close();
  }

  /** Resolves once no operation of the session is in flight. */
  async untilQuiet(id: string): Promise<void> {
    await eventually(async () => expect((await this.rowOf(id)).op).toBe(null));
  }

  // biome-ignore lint/suspicious/noExplicitAny: as the driver gives it
  async rowOf(id: string): Promise<any> {
    return (await this.#control.sql.query("select * from sessions where id = $1", [id])).rows[0];
  }

  machinesOf(id: string): string[] {
    return [...this.#control.node.machines.keys()].filter((name) => name.startsWith(id));
  }

  async eventsOf(id: string): Promise<[string, string | undefined][]> {
    const { rows } = await this.#control.sql.query(
      "select type, data from events where session_id = $1 order by seq",
      [id],
    );
    return rows.map(({ type, data }) => [type, data.reason]);
  }
}
