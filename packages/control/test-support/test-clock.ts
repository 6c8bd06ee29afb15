/** Lets a test move the deadlines' clock. Leases of processes stay on the real clock. */
import type pg from "pg";

export class TestClock {
  readonly #sql: pg.Pool;

  private constructor(sql: pg.Pool) {
    this.#sql = sql;
  }

  static async install(sql: pg.Pool): Promise<TestClock> {
    await sql.query(`
      create table test_clock (ahead interval not null);
      insert into test_clock values ('0');
      create or replace function service_now() returns timestamptz language sql stable as
        'select now() + (select ahead from test_clock)'`);
    return new TestClock(sql);
  }

  async advance(ms: number): Promise<void> {
    await this.#sql.query("update test_clock set ahead = ahead + make_interval(secs => $1)", [ms / 1000]);
  }

  /** Is stopped from now on, at a whole millisecond. */
  async stop(): Promise<void> {
    await this.#sql.query(`
      create or replace function service_now() returns timestamptz language sql stable as
        $$ select timestamptz '${await this.at()}' $$`);
  }

  /** Back to the real time. */
  async reset(): Promise<void> {
    await this.#sql.query("update test_clock set ahead = '0'");
  }

  /** This clock's time plus `laterMs`. */
  async at(laterMs = 0): Promise<string> {
    const { rows } = await this.#sql.query("select service_now() + make_interval(secs => $1) as at", [
      laterMs / 1000,
    ]);
    return (rows[0].at as Date).toISOString();
  }
}
