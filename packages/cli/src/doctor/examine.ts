import type { ConfigInForce } from "../install/config-in-force.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { checkCgroups } from "./cgroups.ts";
import type { Finding } from "./finding.ts";
import { checkFirewall } from "./firewall.ts";
import { checkKvm } from "./kvm.ts";
import { checkNetworkTable } from "./network-table.ts";
import { checkObjectStore } from "./object-store.ts";
import { checkPrivateOpen } from "./private-open.ts";
import { checkServiceSettings } from "./settings.ts";
import {
  checkBaselines,
  checkBuilder,
  checkDataDisk,
  checkDataInUse,
  checkDisk,
  checkImages,
  checkReflink,
} from "./storage.ts";
import { checkClock, checkRoot, checkServiceUser, checkSwap, checkSystem } from "./system.ts";
import { checkTemplates } from "./templates.ts";
import { checkBubblewrap, checkConntrack, checkNft, checkQemu } from "./tools.ts";

/** Runs every check of this host; the slow KVM check runs while the others do. */
export function examineHost({ config, file }: ConfigInForce, now: Date): Promise<Finding[]> {
  const { dataDir, childEnv } = config;
  const { imagesDir, nodeSocket } = layoutOf(dataDir, config.imagesDir);
  return Promise.all([
    checkSystem(),
    checkRoot(),
    checkKvm(imagesDir, childEnv.VIV_ACCEL),
    checkQemu(),
    checkBubblewrap(),
    checkNft(),
    checkConntrack(),
    checkFirewall(),
    checkNetworkTable(dataDir),
    checkServiceSettings(config, file),
    checkPrivateOpen(config),
    checkObjectStore(childEnv),
    checkCgroups(childEnv.VIV_NODE_SOCKET || nodeSocket),
    checkDataInUse(dataDir),
    checkReflink(dataDir),
    checkDisk(dataDir),
    checkDataDisk(dataDir),
    checkSwap(),
    checkClock(now),
    checkServiceUser(),
    checkImages(imagesDir),
    checkBuilder(imagesDir),
    checkBaselines(imagesDir, { accelerator: childEnv.VIV_ACCEL }),
    checkTemplates(imagesDir),
  ]);
}
