/** Parses a reference to a template: `name`, or `name@version`. Pure. */
import { TEMPLATE_NAME_PATTERN } from "@vivarium/contract/api";

export interface TemplateReference {
  name: string;
  /** The version as written, also of an official template. */
  version?: string;
  /** The same as a number, which every version of a saved template is; absent if the text is not one. */
  number?: number;
}

/** Undefined if the text is not a reference. */
export function readReference(text: string): TemplateReference | undefined {
  const [name = "", version, ...rest] = text.split("@");
  if (!TEMPLATE_NAME_PATTERN.test(name) || rest.length > 0) return undefined;
  if (version === undefined) return { name };
  if (!VERSION_PATTERN.test(version)) return undefined;
  return { name, version, number: /^[1-9][0-9]{0,8}$/.test(version) ? Number(version) : undefined };
}

const VERSION_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
