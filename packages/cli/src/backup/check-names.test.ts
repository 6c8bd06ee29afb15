import { expect, test } from "vitest";
import { checkNames } from "./check-names.ts";

const ID = "pau_a1b2c3d4e5f6g7h8i9j0k";
const BUILD = "e8f995668153f7c1";
const VOLUME = "vol_a1b2c3d4e5f6g7h8i9j0k";
const OBJECT = `org_a/artifacts/art_a1b2c3d4e5f6g7h8i9j0k/${"0f".repeat(32)}@`;
const SPACE = "spc_a1b2c3d4e5f6g7h8i9j0k";
const CHUNK = `org_a/archives/${SPACE}/${"0f".repeat(32)}@`;
const SUM = { bytes: 1, sha256: "00" };

test("the names that a backup has are accepted", () => {
  const names = [
    "database.jsonl",
    "control/pepper",
    `s/${ID}/mem.sums`,
    `qemu-root/${BUILD}/usr/lib/a..b.so`,
    `v/${VOLUME}/image`,
    `objects/${OBJECT}`,
    `objects/${CHUNK}`,
    `objects/${CHUNK.replace("org_a", "service")}`,
  ];
  const files = Object.fromEntries(names.map((name) => [name, SUM]));
  checkNames({
    snapshots: [ID],
    volumes: [VOLUME],
    files: { ...files, [`qemu-root/${BUILD}/lib64/ld.so`]: { link: "../usr/lib" } },
  });
});

test.each(["../../etc", "pau_1", "/etc", `${ID}/..`, "", 7, null])(
  "%j is no id of a saved state or volume, and its backup is refused",
  (id) => {
    expect(() => checkNames({ snapshots: [id as string], volumes: [], files: {} })).toThrow(
      `the id of a saved state is ${JSON.stringify(id)}`,
    );
    expect(() => checkNames({ snapshots: [], volumes: [id as string], files: {} })).toThrow(
      `the id of a volume is ${JSON.stringify(id)}`,
    );
  },
);

test.each([
  "/etc/passwd",
  "../evil",
  "control/../../evil",
  "control/keys/more",
  "control/..",
  "control/",
  "control//pepper",
  "./database.jsonl",
  "evil",
  "s/pau_zzzzzzzzzzzzzzzzzzzzz/mem",
  `s/${ID}`,
  `s/${ID}/../../../evil`,
  `s/${ID}/a\0b`,
  "qemu-root/../evil",
  "qemu-root/other/usr/bin/qemu",
  "v/vol_zzzzzzzzzzzzzzzzzzzzz/image",
  `v/${VOLUME}/holder`,
  `v/${VOLUME}/image/more`,
  `s/${VOLUME}`,
  `objects/${OBJECT}/more`,
  `objects/${OBJECT.slice(0, -1)}`,
  `objects/${OBJECT.replace("org_a", "..")}`,
  `objects/${OBJECT.replace("/artifacts/", "/../")}`,
  `objects/${OBJECT.replace("org_a", "service")}`,
  `objects/${CHUNK.replace("spc_", "art_")}`,
  `objects/${CHUNK.replace("/archives/", "/artifacts/")}`,
  "objects/incoming/x",
])("a file %j belongs to no part of a backup, and its backup is refused", (name) => {
  expect(() => checkNames({ snapshots: [ID], volumes: [VOLUME], files: { [name]: SUM } })).toThrow(
    `the name of a file is ${JSON.stringify(name)}`,
  );
});

test.each([
  ["control/pepper", "other"],
  ["database.jsonl", "control/pepper"],
  [`s/${ID}/mem`, "/etc/shadow"],
  [`s/${ID}/mem`, "../../control/pepper"],
  [`s/${ID}/mem`, ".."],
  [`v/${VOLUME}/image`, "other"],
  [`objects/${OBJECT}`, "other"],
  [`qemu-root/${BUILD}/usr/lib`, `../../../${BUILD}-other`],
])("the link %s to %s leads outside of its part, and its backup is refused", (name, link) => {
  expect(() => checkNames({ snapshots: [ID], volumes: [VOLUME], files: { [name]: { link } } })).toThrow(
    `the target of the link ${name} is ${JSON.stringify(link)}`,
  );
});
