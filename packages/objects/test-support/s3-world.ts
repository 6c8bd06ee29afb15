/** A real S3 server with a bucket, behind a proxy that does harm when a test asks for it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { S3 } from "@aws-sdk/client-s3";
import type { S3Limits, S3Settings } from "../src/s3-settings.ts";
import { FaultProxy } from "./fault-proxy.ts";
import { CREDENTIAL, REGION, startS3 } from "./real-s3.ts";

const BUCKET = "objects-of-tests";

export interface S3World extends AsyncDisposable {
  proxy: FaultProxy;
  bucket: string;
  /** A client without the store, to look at what the store did. */
  s3: S3;
  /** As an operator would set it. */
  environment: Record<string, string>;
  settings: (prefix?: string, limits?: Partial<S3Limits>) => S3Settings;
}

export async function startS3World(): Promise<S3World> {
  const directory = await mkdtemp(join(tmpdir(), "s3-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const server = stack.use(await startS3(directory));
  const proxy = stack.use(await FaultProxy.start(server.socket));
  const { endpoint } = proxy;
  const s3 = new S3({ endpoint, region: REGION, forcePathStyle: true, credentials: CREDENTIAL });
  stack.defer(() => s3.destroy());
  await s3.createBucket({ Bucket: BUCKET });
  const settings: S3World["settings"] = (prefix = "of-tests/", limits = {}) => ({
    bucket: BUCKET,
    prefix,
    endpoint,
    region: REGION,
    isPathStyle: true,
    credentials: async () => CREDENTIAL,
    limits,
  });
  const environment = {
    VIV_OBJECTS: `s3://${BUCKET}/of-tests`,
    VIV_OBJECTS_ENDPOINT: endpoint,
    VIV_OBJECTS_REGION: REGION,
    AWS_ACCESS_KEY_ID: CREDENTIAL.accessKeyId,
    AWS_SECRET_ACCESS_KEY: CREDENTIAL.secretAccessKey,
  };
  const all = stack.move();
  return {
    proxy,
    bucket: BUCKET,
    s3,
    environment,
    settings,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
