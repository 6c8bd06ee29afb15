/** A test that always hangs: being cut off at its time limit proves nothing (defences.test.ts). */
import { test } from "vitest";

test("waits for what never comes", () => new Promise(() => {}), 100);
