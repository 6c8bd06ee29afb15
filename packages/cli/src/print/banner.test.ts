import { expect, test } from "vitest";
import { renderBanner } from "./banner.ts";

const [ok, off] = ["ok", "off"] as const;
const checks = { store: ok, runtime: ok, images: ok, disk: ok, secrets_key: off, cold_tier: off };

function banner(isolation: "kvm" | "emulated" | "mixed", emulated_states?: number): string {
  const health = { status: "ok", version: "0.1.0", isolation, emulated_states, checks } as const;
  return renderBanner({ url: "http://h", keyFile: "/key", logs: "/log", health, after: "1 s" });
}

test("a start warns of emulation, whole or in part, and of nothing where all machines have KVM", () => {
  expect(banner("emulated")).toMatch(/^warning: no working KVM/);
  expect(banner("mixed", 3)).toMatch(/^warning: 3 saved states and machines here were made without KVM/);
  expect(banner("kvm")).not.toContain("warning");
});
