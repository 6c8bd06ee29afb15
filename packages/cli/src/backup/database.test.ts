import { expect, test } from "vitest";
import { readConfig } from "../config.ts";
import { databasePlace } from "./database.ts";

const placeWith = (env: Record<string, string>) =>
  databasePlace(readConfig({ VIV_DATA_DIR: "/srv/data", ...env }));

test("the database, control's user and the objects are where the settings say, else in the data directory", () => {
  expect(placeWith({})).toEqual({
    url: undefined,
    controlUser: "vivarium",
    objectsDir: "/srv/data/objects",
    localDir: "/srv/data/objects",
  });
  const url = "postgres://own/of-the-unit";
  expect(
    placeWith({ DATABASE_URL: url, VIV_CONTROL_USER: "somebody", VIV_OBJECTS_DIR: "/srv/objects" }),
  ).toEqual({ url, controlUser: "somebody", objectsDir: "/srv/objects", localDir: "/srv/objects" });
});

test("objects in a bucket have no directory, and those of the warm tier have that of before", () => {
  const place = placeWith({ VIV_OBJECTS: "s3://bucket/vivarium" });
  expect(place).toMatchObject({ objectsDir: undefined, localDir: "/srv/data/objects" });
});
