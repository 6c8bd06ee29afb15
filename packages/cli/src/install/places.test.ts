import { mkdir, symlink } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { placesIn } from "./places.ts";

inOwnDirectories();

test("a unit waits for the places that its settings name, and for those that links lead to", async () => {
  const [real, link] = [path.join(dir, "disk/data"), path.join(dir, "link")];
  await mkdir(path.join(real, "pool"), { recursive: true });
  await symlink(real, link);
  const settings = { VIV_OBJECTS_DIR: "/srv/objects", VIV_IMAGES_DIR: "relative", VIV_LISTEN: "127.0.0.1:1" };
  expect(placesIn(link, settings)).toEqual(["/srv/objects", real, path.join(real, "pool")]);
  expect(placesIn("/srv/no-such", {})).toEqual([]);
});
