/** Asks the node of this host over its unix socket, which root and the service's user can open. */
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { NodeInfo } from "@vivarium/contract/node";

const LIMIT_MS = 2_000;

/** Undefined if the node does not answer, or the caller may not ask it. */
export async function askNode(socketPath: string): Promise<NodeInfo | undefined> {
  try {
    const answer = await new Promise<string>((resolve, reject) => {
      const asked = request(
        { socketPath, path: "/v1/info", signal: AbortSignal.timeout(LIMIT_MS) },
        (response) => text(response).then(resolve, reject),
      );
      asked.once("error", reject);
      asked.end();
    });
    return NodeInfo.parse(JSON.parse(answer));
  } catch {
    return undefined;
  }
}
