/**
 * What defends names, flows and previews, and how to take each away: rows of security.md D7, D8 and D10. Without it the
 * test beside the code that is named there must fail; were it to pass, it would not notice an attack.
 */
import type { Defence } from "./defence.ts";
import { flows } from "./flows.ts";
import { names } from "./names.ts";
import { previews } from "./previews.ts";

export const DEFENCES: Defence[] = [...names, ...flows, ...previews];
