/** Metrics of what is kept in the object store, read from the rows that name it: no list of the store's objects is asked for. */
import { ARCHIVE_STATUSES } from "@vivarium/contract/api";
import { Gauge } from "prom-client";
import { type Archive, countArchives } from "../archive-records/store.ts";
import { countArtifactBytes } from "../artifact-records/store.ts";
import { sparingly } from "../metrics/sparingly.ts";
import type { ServiceDeps } from "./deps.ts";

const KINDS: readonly Archive["kind"][] = ["pause", "checkpoint", "template", "baseline"];
/** A state without an archive has no row. */
const STATES = ARCHIVE_STATUSES.filter((status) => status !== "unavailable");

export function addObjectGauges({ db, meter }: Pick<ServiceDeps, "db" | "meter">): void {
  const registers = [meter.registry];
  const readArchives = sparingly(() => countArchives(db));
  const readArtifactBytes = sparingly(() => countArtifactBytes(db));
  new Gauge({
    name: "vivarium_archives",
    help: "Archives of saved states, by what was saved; state: pending is not stored yet, complete is, failed waits for its hour",
    labelNames: ["kind", "state"],
    registers,
    async collect() {
      const counts = await readArchives().catch(() => undefined);
      this.reset();
      if (!counts) return;
      for (const kind of KINDS) for (const state of STATES) this.set({ kind, state }, 0);
      for (const { kind, state, count } of counts) this.set({ kind, state }, count);
    },
  });
  new Gauge({
    name: "vivarium_archive_bytes",
    help: "Complete archives; of: packed, before compression; sent, the objects that their last upload put into the store",
    labelNames: ["kind", "of"],
    registers,
    async collect() {
      const counts = await readArchives().catch(() => undefined);
      this.reset();
      if (!counts) return;
      for (const kind of KINDS) {
        const complete = counts.find((one) => one.kind === kind && one.state === "complete");
        this.set({ kind, of: "packed" }, complete?.packed_bytes ?? 0);
        this.set({ kind, of: "sent" }, complete?.sent_bytes ?? 0);
      }
    },
  });
  new Gauge({
    name: "vivarium_artifact_bytes",
    help: "Files of artifacts of all organisations, before compression",
    registers,
    async collect() {
      const bytes = await readArtifactBytes().catch(() => undefined);
      // A gauge without labels has a value after a reset, too: a zero would say that there are no artifacts.
      this.remove();
      if (bytes !== undefined) this.set(bytes);
    },
  });
}
