/** Defences of archives against the store that keeps them, and against deaths. */
import type { Defence } from "./defence.ts";

const ARCHIVE = "packages/archive/src";

export const archives: Defence[] = [
  {
    row: "K-17",
    off: "that contents are those which the row names",
    edits: [
      {
        file: `${ARCHIVE}/contents.ts`,
        text: `if (digestOf(object).toString("hex") !== name)`,
        instead: "if (false)",
      },
    ],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "earlier contents in the place of later ones are refused",
  },
  {
    row: "K-17",
    off: "that an object is sealed for its name",
    edits: [
      {
        file: `${ARCHIVE}/envelope.ts`,
        text: `  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(Buffer.concat([head, Buffer.from(name)]));`,
        instead: "  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(head);",
      },
      {
        file: `${ARCHIVE}/envelope.ts`,
        text: "decipher.setAAD(Buffer.concat([head, Buffer.from(name)]))",
        instead: "decipher.setAAD(head)",
      },
    ],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "another key, another label and another secret open nothing",
  },
  {
    row: "K-17",
    off: "that a chunk has the content of its digest",
    edits: [
      { file: `${ARCHIVE}/chunks.ts`, text: "if (!digestOf(content).equals(digest))", instead: "if (false)" },
    ],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "is refused though it has the right key",
  },
  {
    row: "K-17",
    off: "that a chunk is decompressed to its own length at most",
    edits: [{ file: `${ARCHIVE}/envelope.ts`, text: "{ maxOutputLength: mostBytes }", instead: "{}" }],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "is refused though it has the right key",
  },
  {
    row: "K-17",
    off: "that an object is not read past its longest form",
    edits: [
      {
        file: `${ARCHIVE}/chunk-store.ts`,
        text: "if (Math.max(bytes, sizeBytes) > mostBytes)",
        instead: "if (false)",
      },
    ],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "a store that gives more than was ever put is not read to its end",
  },
  {
    row: "K-17",
    off: "that a folder is put together above its own base alone",
    edits: [{ file: `${ARCHIVE}/unpack.ts`, text: "  requireBase(contents, options.base);\n", instead: "" }],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "an archive above a base is refused without it",
  },
  {
    row: "K-17",
    off: "that a folder appears only when it is whole",
    edits: [
      {
        file: `${ARCHIVE}/unpack.ts`,
        text: 'const partial = `${dir}.${randomBytes(8).toString("hex")}.partial`;',
        instead: "const partial = dir;",
      },
    ],
    file: `${ARCHIVE}/hostile-store.test.ts`,
    test: "a folder that its caller refuses does not appear, and one that is there stays",
  },
];
