import { BuildFailure } from "@vivarium/contract/node";
import { RegistryError } from "@vivarium/oci/registry-error";
import { expect, it } from "vitest";
import { NodeError } from "../node-error.ts";
import { BuildError } from "./build-error.ts";
import { failureOf, Interruption } from "./failure.ts";

it("is a word for each error of a registry, whether it may pass, and how long it asks to wait", () => {
  const of = (...args: ConstructorParameters<typeof RegistryError>) =>
    BuildFailure.parse(failureOf(new RegistryError(...args)));
  expect(of("authentication_failed", "private")).toEqual({
    ...{ word: "registry_auth", message: "private", is_transient: false },
  });
  expect(of("not_found", "none")).toMatchObject({ word: "image_not_found", is_transient: false });
  expect(of("unreachable", "down", { isTransient: true })).toMatchObject({
    ...{ word: "internal", message: "down", is_transient: true },
  });
  expect(of("rate_limited", "later", { retryAfterMs: 1500.5 })).toMatchObject({
    ...{ word: "rate_limited", is_transient: true, retry_after_ms: 1501 },
  });
});

it("shows what an image did wrong, and what the node lacks, on one line", () => {
  expect(failureOf(new BuildError("image_invalid", "layer 1:\na path climbs"))).toEqual({
    ...{ word: "image_invalid", message: "layer 1: a path climbs", is_transient: false },
  });
  expect(failureOf(new NodeError("disk_pressure", "too little free disk"))).toMatchObject({
    ...{ word: "internal", message: "too little free disk", is_transient: true },
  });
  expect(failureOf(new Interruption())).toMatchObject({ word: "interrupted", is_transient: true });
});

it("shows nothing of this host", () => {
  for (const error of [new Error("ENOENT: /var/lib/x"), new BuildError("internal", "/var/lib/x"), "x"]) {
    const { word, message } = failureOf(error);
    expect([word, message]).toEqual(["internal", "unexpected failure on the node"]);
  }
});
