/**
 * Defences of names, flows and previews, and how to take each away. Without its defence, the named test beside the code
 * must fail; if it passed, it would not notice an attack.
 */
import type { Defence } from "./defence.ts";
import { flows } from "./flows.ts";
import { names } from "./names.ts";
import { previews } from "./previews.ts";

export const DEFENCES: Defence[] = [...names, ...flows, ...previews];
