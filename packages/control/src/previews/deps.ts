import type { KeyedQueue } from "@vivarium/kit/keyed-queue";
import type { MoveDeps } from "../moves/deps.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import type { PreviewPush } from "./push.ts";

export interface PreviewDeps extends MoveDeps, PreviewUrls {
  previewKey: Buffer;
  previewPush: PreviewPush;
  exposeQueue: KeyedQueue;
}
