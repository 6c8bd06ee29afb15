/** Reads `--allow` of `viv connect add`: the requests that get a Connection's credential. */
import type { ConnectionCreate } from "@vivarium/sdk";
import { UsageError } from "../cli-error.ts";

/** One `--allow`: each of the methods on each of the paths. */
export interface AllowRule {
  methods: string[];
  paths: string[];
}

/** Adds one `GET,POST /v1/* /v2/items` of a repeatable option to those before it. */
export function collectAllow(text: string, before: AllowRule[] = []): AllowRule[] {
  const [methods = "", ...paths] = text.trim().split(/\s+/);
  if (methods === "" || methods.includes("/") || paths.length === 0)
    throw new UsageError(
      `--allow ${JSON.stringify(text)}: expected methods and paths`,
      'For instance --allow "GET,POST /v1/customers/*", with more paths after blanks.',
    );
  const named = methods.split(",").filter((method) => method !== "");
  return [...before, { methods: named.map((method) => method.toUpperCase()), paths }];
}

/**
 * The two lists of a Connection. Hazard: it allows each of its methods on each of its paths, so rules of different
 * methods and paths would together allow more than each of them says. Such rules are refused.
 */
export function toAllow(rules: readonly AllowRule[]): NonNullable<ConnectionCreate["allow"]> {
  const methods = [...new Set(rules.flatMap((rule) => rule.methods))];
  const paths = [...new Set(rules.flatMap((rule) => rule.paths))];
  const isNamed = (method: string, path: string) =>
    rules.some((rule) => rule.methods.includes(method) && rule.paths.includes(path));
  for (const method of methods) {
    const path = paths.find((each) => !isNamed(method, each));
    if (path !== undefined)
      throw new UsageError(
        `the --allow rules together would also allow ${method} ${path}`,
        `A Connection allows each of its methods on each of its paths. If that is meant: --allow ${JSON.stringify(`${methods.join(",")} ${paths.join(" ")}`)}. Else name fewer.`,
      );
  }
  return { methods, paths };
}
