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
  });
  const url = "postgres://own/of-the-unit";
  expect(
    placeWith({ DATABASE_URL: url, VIV_CONTROL_USER: "somebody", VIV_OBJECTS_DIR: "/srv/objects" }),
  ).toEqual({ url, controlUser: "somebody", objectsDir: "/srv/objects" });
});

test("objects in a bucket have no directory", () => {
  expect(placeWith({ VIV_OBJECTS: "s3://bucket/vivarium" })).toMatchObject({ objectsDir: undefined });
});
