/** A test that hangs whatever the product does: that it is cut off shows nothing (defences.test.ts). */
import { test } from "vitest";

test("waits for what never comes", () => new Promise(() => {}), 100);
