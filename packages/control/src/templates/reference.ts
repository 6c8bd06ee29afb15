/** What a caller writes to name a template: `name`, or `name@version`. Pure. */
import { TEMPLATE_NAME_PATTERN } from "@vivarium/contract/api";

export interface TemplateReference {
  name: string;
  /** As written; a template of the caller's own has plain numbers. */
  version?: string;
}

/** Undefined for what names no template at all. */
export function readReference(text: string): TemplateReference | undefined {
  const [name = "", version, ...rest] = text.split("@");
  if (!TEMPLATE_NAME_PATTERN.test(name) || rest.length > 0) return undefined;
  if (version === undefined) return { name };
  return VERSION_PATTERN.test(version) ? { name, version } : undefined;
}

/** The number of a version of a user's template; undefined for what is none, such as a date. */
export function versionNumber(version: string): number | undefined {
  return /^[1-9][0-9]{0,8}$/.test(version) ? Number(version) : undefined;
}

const VERSION_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
