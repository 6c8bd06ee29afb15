import { expect, test } from "vitest";
import { type BackupManifest, differences, newManifest, readManifest } from "./manifest.ts";

const build = { version: "0.2.0", schema: 17 };
const manifest = newManifest({
  made_at: "2027-03-01T09:30:00.000Z",
  made_by: "0.3.0+aaaaaaa",
  schema: 17,
  node_id: "nod_local",
  saved_state: true,
  snapshots: ["pau_1"],
  volumes: ["vol_1"],
  artifacts: ["art_1"],
  archives: ["spc_1"],
  missing: [],
  files: { "control/pepper": { bytes: 32, sha256: "00" }, "s/pau_1/link": { link: "mem" } },
});
const textOf = (change: object = {}) => JSON.stringify({ ...manifest, ...change });

test("a manifest of this schema or an earlier one is read", () => {
  expect(readManifest(textOf(), build)).toEqual(manifest);
  expect(readManifest(textOf({ schema: 3 }), build).schema).toBe(3);
});

test("a backup of before volumes, artifacts and packed states were saved is read as one without them", () => {
  const { volumes, artifacts, archives, ...before } = { ...manifest, format: 1 };
  expect(readManifest(JSON.stringify(before), build)).toEqual({
    ...before,
    volumes: [],
    artifacts: [],
    archives: [],
  });
});

test("a backup of a later schema or format is refused with both versions", () => {
  expect(() => readManifest(textOf({ schema: 18 }), build)).toThrow(
    "was made by 0.3.0+aaaaaaa with schema 18; this viv (0.2.0) knows schemas up to 17",
  );
  expect(() => readManifest(textOf({ format: 3 }), build)).toThrow("has format 3");
});

test.each(["", "{", "[]", "null", '{"format":1}', textOf({ files: null }), textOf({ files: { a: null } })])(
  "%j is no manifest",
  (text) => {
    expect(() => readManifest(text, build)).toThrow("is no backup of viv");
  },
);

test("missing, added and changed files are named", () => {
  const found: BackupManifest["files"] = {
    "control/pepper": { bytes: 32, sha256: "01" },
    "control/more": { bytes: 1, sha256: "02" },
  };
  expect(differences(manifest.files, manifest.files)).toEqual([]);
  expect(differences(manifest.files, found)).toEqual([
    "control/more is not in the manifest",
    "control/pepper is damaged",
    "s/pau_1/link is missing",
  ]);
});
