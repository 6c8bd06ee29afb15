/** The configuration of an image: the platform it is for, and how its program wants to be run. */
import { z } from "zod";
import { isDigest } from "./digest.ts";
import { readAs, readJson } from "./documents.ts";

export interface ImageConfig {
  os: string;
  architecture: string;
  /** `NAME=value` each. */
  env: string[];
  entrypoint: string[];
  cmd: string[];
  /** Empty where the image has no opinion, like all that follows. */
  workingDir: string;
  user: string;
  stopSignal: string;
  labels: Record<string, string>;
  /** Digests of the unpacked layers, lowest first. */
  diffIds: string[];
}

/** No program can be given a NUL. */
const Text = z.string().refine((text) => !text.includes("\0"), "expected no NUL");
const Texts = z
  .array(Text)
  .nullish()
  .transform((texts) => texts ?? []);
const Word = Text.nullish().transform((text) => text ?? "");
const Labels = z
  .record(z.string(), Text)
  .nullish()
  .transform((labels) => labels ?? {});
const Run = z.object({
  Env: z
    .array(Text.refine((text) => /^[^=]+=/s.test(text), "expected NAME=value"))
    .nullish()
    .transform((env) => env ?? []),
  Entrypoint: Texts,
  Cmd: Texts,
  WorkingDir: Word,
  User: Word,
  StopSignal: Word,
  Labels,
});
const Config = z.object({
  os: z.string(),
  architecture: z.string(),
  config: Run.nullish().transform((run) => run ?? Run.parse({})),
  rootfs: z.object({
    type: z.literal("layers"),
    diff_ids: z.array(z.string().refine(isDigest, "expected a digest")),
  }),
});

export function readImageConfig(bytes: Buffer): ImageConfig {
  const what = "the configuration";
  const { os, architecture, config, rootfs } = readAs(Config, readJson(bytes, what), what);
  return {
    os,
    architecture,
    env: config.Env,
    entrypoint: config.Entrypoint,
    cmd: config.Cmd,
    workingDir: config.WorkingDir,
    user: config.User,
    stopSignal: config.StopSignal,
    labels: config.Labels,
    diffIds: rootfs.diff_ids,
  };
}
