import { snapshotContract } from "../contract/snapshot-contract.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";

snapshotContract(async () => nodeCaller(service.nodeSocket), { hasMemory: true });
