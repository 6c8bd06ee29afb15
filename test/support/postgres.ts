/** Starts one PostgreSQL for a test run; every test file clones its own database from a migrated template. */
import type { TestProject } from "vitest/node";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../scripts/embedded-postgres.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Directory of the server's unix socket; unset when no test of this run needs a database. */
    postgresFolder: string;
  }
}

let postgres: EmbeddedPostgres | undefined;

export async function setup(project: TestProject): Promise<void> {
  postgres = await startEmbeddedPostgres();
  project.provide("postgresFolder", postgres.folder);
}

export async function teardown(): Promise<void> {
  await postgres?.stop();
}
