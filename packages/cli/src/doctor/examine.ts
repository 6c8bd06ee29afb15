import { layoutOf } from "../supervisor/layout.ts";
import type { Finding } from "./finding.ts";
import { checkFirewall } from "./firewall.ts";
import { checkKvm } from "./kvm.ts";
import { checkBaselines, checkDisk, checkImages, checkReflink } from "./storage.ts";
import { checkCgroups, checkClock, checkRoot, checkServiceUser, checkSwap, checkSystem } from "./system.ts";
import { checkBubblewrap, checkConntrack, checkNft, checkQemu } from "./tools.ts";

/** Runs every check of this host; the slow KVM check runs while the others do. */
export function examineHost(input: { dataDir: string; imagesDir?: string; now: Date }): Promise<Finding[]> {
  const { imagesDir } = layoutOf(input.dataDir, input.imagesDir);
  return Promise.all([
    checkSystem(),
    checkRoot(),
    checkKvm(imagesDir),
    checkQemu(),
    checkBubblewrap(),
    checkNft(),
    checkConntrack(),
    checkFirewall(),
    checkCgroups(),
    checkReflink(input.dataDir),
    checkDisk(input.dataDir),
    checkSwap(),
    checkClock(input.now),
    checkServiceUser(),
    checkImages(imagesDir),
    checkBaselines(imagesDir),
  ]);
}
