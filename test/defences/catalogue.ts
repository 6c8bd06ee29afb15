/**
 * Defences of names, flows, previews, credentials, pulls of images and archives, and how to take each away. Without its defence, the
 * named test beside the code must fail; if it passed, it would not notice an attack.
 */
import { archives } from "./archives.ts";
import { credentials } from "./credentials.ts";
import type { Defence } from "./defence.ts";
import { flows } from "./flows.ts";
import { images } from "./images.ts";
import { names } from "./names.ts";
import { previews } from "./previews.ts";

export const DEFENCES: Defence[] = [...names, ...flows, ...previews, ...credentials, ...images, ...archives];
