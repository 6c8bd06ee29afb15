import { nodeContract } from "../contract/node-contract.ts";
import { service } from "../support/http.ts";
import { nodeCaller } from "../support/node-caller.ts";

nodeContract(async () => nodeCaller(service.nodeSocket));
