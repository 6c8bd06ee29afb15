/** The product without one of its defences: the text of a module is replaced while it is loaded, in memory alone. */
import { resolve } from "node:path";

export interface Edit {
  /** From the root of the repository. */
  file: string;
  /** Text that occurs in the file exactly once. */
  text: string;
  instead: string;
}

/** For Vite. Throws when a text does not occur exactly once: the list is out of date. */
export function without(root: string, edits: Edit[]): { name: string; enforce: "pre"; transform: Transform } {
  return {
    name: "without-a-defence",
    enforce: "pre",
    transform(code, id) {
      const here = edits.filter(({ file }) => resolve(root, file) === id.split("?")[0]);
      return here.length === 0 ? undefined : { code: here.reduce(replaceOnce, code), map: null };
    },
  };
}

type Transform = (code: string, id: string) => { code: string; map: null } | undefined;

export function replaceOnce(code: string, { file, text, instead }: Edit): string {
  const [before = "", after, ...more] = code.split(text);
  if (after === undefined || more.length > 0) {
    throw new Error(
      `${file} should contain this once, and has it ${more.length + (after === undefined ? 0 : 1)} times: ${text}`,
    );
  }
  return before + instead + after;
}
